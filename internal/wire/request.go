package wire

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/scripts"
)

// Vote is the first argument of a script: what decides whether a master votes, and the floor of the tokens that it
// mints. The zero value is for a single master, which always votes and has its clock as the floor: vote.lua.
type Vote struct {
	Proposal   int64  // the floor of new tokens that the client proposes
	Seen       string // the marker's id that the client has seen
	Quarantine Millis // for how long this master abstains after it may have lost data; "" for a single master
	Check      bool   // compares the master's run id with the marker's
}

// VoteAt is how many arguments of a script stand before its vote. Where these are all, and the vote is that of a single
// master, it is left out.
func VoteAt(script scripts.Name) int {
	switch script {
	case scripts.Acquire:
		return 2
	case scripts.Release:
		return 1
	default:
		return 0
	}
}

// SeenNone is the id of a marker that the client has not seen. No marker has it.
const SeenNone = "?"

// Alone is the text of the zero Vote.
const Alone = "0"

func (v Vote) Arg() string {
	if v.Quarantine == "" {
		return Alone
	}
	text := make([]byte, 0, 128) // on the stack
	text = appendToken(text, fencing.Token(v.Proposal))
	text = append(append(text, ' '), v.Seen...)
	text = append(append(text, ' '), v.Quarantine...)
	text = append(append(text, ' '), flagArg(v.Check)...)
	return string(text)
}

// ProposalArg returns the proposal as an argument of its own.
func (v Vote) ProposalArg() string {
	var array [tokenDigits]byte
	return string(appendToken(array[:0], fencing.Token(v.Proposal)))
}

// Millis is a duration as the scripts read it: whole milliseconds, formatted once for many requests.
type Millis string

// FormatMillis returns a duration as an argument. Parts of a millisecond are left out.
func FormatMillis(d time.Duration) Millis { return Millis(strconv.FormatInt(d.Milliseconds(), 10)) }

const NoMillis Millis = "0"

// maxMillis is the longest duration of a reply: added to a time of any clock it is a time.Duration still.
const maxMillis = int64(math.MaxInt64 / 2 / time.Millisecond)

// tokenDigits is how many digits a lock keeps of a token. Scripts compare tokens as texts.
const tokenDigits = 16

// appendToken appends a token with all its digits.
func appendToken(to []byte, t fencing.Token) []byte {
	for least := fencing.Token(1e15); least > t && least > 1; least /= 10 {
		to = append(to, '0')
	}
	return strconv.AppendUint(to, uint64(t), 10)
}

// tokenArg formats a token. It is written in full: Lua's own conversion loses digits from 1e14 on.
func tokenArg(t fencing.Token) string { return strconv.FormatUint(uint64(t), 10) }

func modeArg(m fencing.Mode) string {
	if m == fencing.Write {
		return "w"
	}
	return "r"
}

func readMode(s string) (m fencing.Mode, ok bool) {
	switch s {
	case "r":
		return fencing.Read, true
	case "w":
		return fencing.Write, true
	default:
		return 0, false
	}
}

func flagArg(set bool) string {
	if set {
		return "1"
	}
	return "0"
}

// Route says how a message reaches a process: a letter and a channel.
type Route string

// Published returns the route of a process that receives the messages of one server. A message that no process receives
// shows that the process does not listen.
func Published(channel string) Route { return Route("p" + channel) }

// Sharded is Published with the sharded messages of a Cluster's node.
func Sharded(channel string) Route { return Route("s" + channel) }

// Uncounted returns the route of a process whose messages may come through other servers, or that does not listen so
// far. The count of receivers shows nothing, so a master does not pass over its waiters.
func Uncounted(channel string) Route { return Route("b" + channel) }

// A master sets these routes: of an ended hold, and in front of the adopter of a hold that was detached.
const (
	noRoute Route = "-"
	adopted Route = "@"
)

// IsUncounted reports whether the count of receivers shows nothing.
func (r Route) IsUncounted() bool { return strings.HasPrefix(string(r), "b") }

// Details are what a master stores of a hold unchanged: the details of lock.lua.
type Details struct {
	Mode       fencing.Mode
	HandoffTTL Millis // how long a waiter lives without a refresh, and a hand-off without a renewal
	Owner      string // "" for the hold itself
	Block      int    // of a shared hold: how many tokens it asks for; 0 for all other holds
	Converts   string // the hold that is converted to this one, or ""
	Route      Route
	Meta       string // anything, with spaces

	gaveBack bool   // the hold has given a grant back; a master adds it
	mark     string // of a hold that is left to another client; a master adds it
}

// Text formats the details. A shared hold has no named owner.
func (d Details) Text() string {
	owner := "-"
	switch {
	case d.Block > 0:
		owner = "+" + strconv.Itoa(d.Block)
	case d.Owner != "":
		owner = d.Owner
	}
	if d.Converts != "" {
		owner += "^" + d.Converts
	}
	if d.gaveBack {
		owner += "~"
	}
	if d.mark != "" {
		owner += "#" + d.mark
	}
	return modeArg(d.Mode) + " " + string(d.HandoffTTL) + " " + owner + " " + string(d.Route) + " " + d.Meta
}

// ParseDetails parses details that a client wrote, perhaps of a later version. ok is false for details of another form.
func ParseDetails(text string) (d Details, ok bool) {
	f := strings.SplitN(text, " ", 5)
	if len(f) != 5 {
		return Details{}, false
	}
	d = Details{HandoffTTL: Millis(f[1]), Route: Route(f[3]), Meta: f[4]}
	_, err := strconv.ParseUint(f[1], 10, 63)
	d.Mode, ok = readMode(f[0])
	routed := len(f[3]) >= 2 && strings.Contains("psb"+string(adopted), f[3][:1]) || d.Route == noRoute
	if !ok || err != nil || !routed {
		return Details{}, false
	}
	owner, mark, _ := strings.Cut(f[2], "#")
	owner, gaveBack := strings.CutSuffix(owner, "~")
	owner, converts, isConversion := strings.Cut(owner, "^")
	if owner == "" || isConversion && converts == "" {
		return Details{}, false
	}
	d.Converts, d.gaveBack, d.mark = converts, gaveBack, mark
	if block, isShared := strings.CutPrefix(owner, "+"); isShared {
		n, err := strconv.ParseUint(block, 10, 31)
		if err != nil || n == 0 {
			return Details{}, false
		}
		d.Block = int(n)
	} else if owner != "-" {
		d.Owner = owner
	}
	return d, true
}

// AllOf returns all keys of a lock, in the order of the scripts: lock, which is its key everywhere else, holds, queue,
// aside. They share one hash tag, the encoded name, so a Cluster keeps them in one slot.
func AllOf(lock string) []string { return []string{lock, lock + ":h", lock + ":q", lock + ":x"} }

// tagEncoder keeps braces out of a hash tag, which ends at the first closing one. "%" is encoded so that no two names
// have the same keys.
var tagEncoder = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// Keyspace names the keys of the locks under one prefix.
type Keyspace struct {
	Marker string // the key of a master's marker
	prefix string
	single bool // there is one master; its scripts do not look at its marker
}

// NewKeyspace returns the keyspace of a prefix on so many masters.
func NewKeyspace(prefix string, masters int) Keyspace {
	return Keyspace{Marker: prefix + ":master", prefix: prefix, single: masters == 1}
}

func (s Keyspace) Of(name string) string { return s.prefix + ":{" + tag(name) + "}" }

// NewHold returns the id of a new hold as a string, the request for it, if that is as the given one but for the hold,
// and the key of its lock. All share one allocation.
func (s Keyspace) NewHold(id []byte, like Acquire, name string) (hold, request, of string) {
	var array [requestLen]byte
	all := string(id) + string(like.appendRequest(array[:0])) + s.prefix + ":{" + tag(name) + "}"
	return all[:holdLen], all[:requestLen], all[requestLen:]
}

func tag(name string) string {
	if strings.ContainsAny(name, "%{}") {
		return tagEncoder.Replace(name)
	}
	return name
}

// Pattern returns the glob pattern of SCAN that matches the first keys of all locks whose names begin with namePrefix.
// Their other keys do not end with the brace.
func (s Keyspace) Pattern(namePrefix string) string {
	return globEscaper.Replace(s.prefix+":{"+tag(namePrefix)) + "*}"
}

// AnyPattern returns the glob pattern of SCAN that matches every key of the prefix.
func (s Keyspace) AnyPattern() string { return globEscaper.Replace(s.prefix+":") + "*" }

var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// NameOf returns the name of the lock whose first key this is. ok is false for a key that no lock has.
func (s Keyspace) NameOf(key string) (name string, ok bool) {
	encoded, ok := strings.CutPrefix(key, s.prefix+":{")
	encoded, closed := strings.CutSuffix(encoded, "}")
	name = tagDecoder.Replace(encoded)
	return name, ok && closed && name != "" && tag(name) == encoded
}

var tagDecoder = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

// ForCall appends the keys that are sent with a script: the lock's, and with several masters the marker of the master.
func (s Keyspace) ForCall(to []string, lock string) []string {
	if s.single {
		return append(to, lock)
	}
	return append(to, lock, s.Marker)
}

// Channel returns the channel on which a locker receives messages.
func (s Keyspace) Channel(client string) string { return s.prefix + ":c:" + client }
