package scriptfuzz

import (
	"fmt"
	"strconv"
	"strings"
)

// The clients of a sequence have agreed on this.
var fuzzed = given{layout: "3", rules: "3 masters", seats: "a b c", quarantine: 10_000}

func newMarker(process string) *marker {
	return &marker{process: process, role: "master", given: fuzzed}
}

// verdict is a master's vote on one call.
type verdict struct {
	code              int64 // 0, replyAbstains or replyChanged
	left              int64 // until it votes again, 0 if that is unknown
	floor             int64 // of new tokens
	abstains, changed bool
	unread            bool // the client has to read the marker
}

// term is one server process in a seat.
type term struct {
	number int64
	run    string
}

// marker is what one of several masters stores about itself.
type marker struct {
	layout, rules, set, seat, seats, run, id string
	until                                    int64
	voted                                    bool // until is there
	terms                                    []term
	process                                  string // the run id of the process that is there, "" if it shows none
	role                                     string
	given                                    given
}

// given is what the clients of a set have agreed on.
type given struct {
	layout, rules, seats string
	quarantine           int64 // for how many ms a master abstains after it may have lost data
}

// vote returns the vote on a call that proposes a token and has seen the marker with that id.
func (k *marker) vote(us, proposal int64, seen string, check bool) verdict {
	if check && k.voted && k.process != "" && k.run != "" && k.run != k.process {
		k.id = ""
	}
	ms := us / 1000
	v := verdict{
		floor:    max(min(proposal, us+aheadMost), k.until*1000),
		abstains: !k.voted || k.until > ms,
		changed:  k.id == "" || seen != "-" && seen != k.id,
	}
	switch {
	case !k.voted:
		v.code = replyAbstains
	case v.changed:
		v.code = replyChanged
	case v.abstains:
		v.code, v.left = replyAbstains, k.until-ms
	}
	v.unread = v.code != 0 && (v.changed || v.left == 0 || v.left > k.given.quarantine)
	return v
}

// markerCall is what a client sends to marker.lua.
type markerCall struct {
	Purpose string `json:"purpose"`
	Set     string `json:"set,omitempty"`
	Seat    int    `json:"seat,omitempty"`
	Terms   string `json:"terms,omitempty"`
	Of      string `json:"of,omitempty"`
	Old     bool   `json:"old,omitempty"` // the quarantine that begins is over already
}

func (k *marker) call(us int64, c markerCall) reply {
	if c.Purpose == "single" {
		if k.layout == "" {
			k.layout = k.given.layout
		}
		return reply{us, k.layout, k.rules, k.set, "", "", int64(0), "", "", "", "", "", ""}
	}
	ms, theirs := us/1000, parseTerms(c.Terms)
	member := k.set != "" && (c.Purpose != "join" || k.set != c.Of)
	switch {
	case k.role == "slave":
	case member:
		k.update(ms, c, theirs)
	case c.Purpose == "join":
		k.join(ms, c, theirs)
	}
	return reply{
		us, k.layout, k.rules, k.set, k.seat, k.seats, k.until, k.process, k.id, k.role, "0", k.run, termsText(k.terms),
	}
}

// join writes the marker of a master that is in no set, or leaves one.
func (k *marker) join(ms int64, c markerCall, theirs []term) {
	for len(theirs) <= c.Seat {
		theirs = append(theirs, term{})
	}
	if k.process != "" {
		theirs[c.Seat] = term{theirs[c.Seat].number + 1, k.process}
	}
	if k.layout == "" {
		k.layout = k.given.layout
	}
	k.rules, k.set, k.seat, k.seats = k.given.rules, c.Set, strconv.Itoa(c.Seat), k.given.seats
	k.terms, k.run, k.voted, k.until = theirs, k.process, true, ms+k.given.quarantine
	k.identify()
}

func (k *marker) identify() { k.id = fmt.Sprintf("%s:%s:%d", k.set, k.run, k.until) }

// update has a member of a set take what the client knows: a process that is new in its seat begins a term.
func (k *marker) update(ms int64, c markerCall, theirs []term) {
	seat, _ := strconv.Atoi(k.seat)
	own, last := term{0, k.run}, term{}
	if seat < len(k.terms) {
		own = k.terms[seat]
	}
	if seat < len(theirs) {
		last = theirs[seat]
	}
	until := k.until
	if c.Purpose == "note" || c.Purpose == "succeed" {
		known := laterTerms(k.terms, theirs)
		for len(known) <= seat {
			known = append(known, term{})
		}
		replaced := last.number > own.number ||
			last.number == own.number && last.run != own.run && last.run != "" && own.run != ""
		switch {
		case c.Purpose == "succeed" && (k.id == "" || k.process != "" && (k.run != k.process || replaced)):
			until = ms + k.given.quarantine
			known[seat] = term{max(own.number, last.number) + 1, k.process}
			k.run = k.process
		case k.run == "" && k.process != "":
			known[seat] = term{max(own.number, 1), k.process}
			k.run = k.process
		}
		k.terms = known
	}
	until = min(until, ms+k.given.quarantine)
	if until != k.until || k.id == "" && k.run == k.process {
		k.until = until
		k.identify()
	}
}

func laterTerms(mine, theirs []term) []term {
	all := make([]term, max(len(mine), len(theirs)))
	copy(all, mine)
	for i, t := range theirs {
		if i >= len(mine) || t.number > mine[i].number {
			all[i] = t
		}
	}
	return all
}

func parseTerms(text string) (all []term) {
	for part := range strings.FieldsSeq(text) {
		number, run, _ := strings.Cut(part, ":")
		n, _ := strconv.ParseInt(number, 10, 64)
		all = append(all, term{n, run})
	}
	return all
}

func termsText(all []term) string {
	parts := make([]string, len(all))
	for i, t := range all {
		parts[i] = fmt.Sprintf("%d:%s", t.number, t.run)
	}
	return strings.Join(parts, " ")
}
