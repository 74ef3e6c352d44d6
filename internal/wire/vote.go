package wire

import "strconv"

// Vote is the first argument of a script: what decides whether a master votes, and the floor of the tokens that it
// mints. The zero value is for a single master, which always votes and has its clock as the floor: vote.lua.
type Vote struct {
	Proposal   int64  // the floor of new tokens that the client proposes
	Seen       string // the marker's id that the client has seen
	Quarantine Millis // for how long this master abstains after it may have lost data; "" for a single master
	Check      bool   // compares the master's run id with the marker's
}

// SeenNone is the id of a marker that the client has not seen. No marker has it.
const SeenNone = "?"

// Arg formats the vote.
func (v Vote) Arg() string {
	if v.Quarantine == "" {
		return "0"
	}
	text := make([]byte, 0, 128) // on the stack
	text = strconv.AppendInt(text, v.Proposal, 10)
	text = append(append(text, ' '), v.Seen...)
	text = append(append(text, ' '), v.Quarantine...)
	text = append(append(text, ' '), flagArg(v.Check)...)
	return string(text)
}
