package transport

import (
	"errors"
	"slices"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// Acquires and releases of a batch are one call, a group: half of what a lock costs a server is the overhead of calls.
// The script does only the common case of each member. The others are sent again alone, as without groups. A group
// whose call fails has run, or not, as a single call that fails. In a Cluster each lock has a slot of its own, and
// there are no groups.
//
// Callers of Do are gathered to a batch while the first of them yields once to the goroutines that are ready to run. So
// no call waits for the answer to another one, and a lone call waits for nothing.

const (
	groupMost    = 64  // members: half a millisecond of the server's time
	groupLeast   = 4   // members for which it is worth it, as a member that is left costs a round trip
	ungroupedFor = 256 // calls after a group of which most were left: the locks of the process are contended then
)

// AllOrNone is common to the acquires of one caller that needs all of these locks or none. Those of one batch are a
// group of their own. If a writer has one of the locks, that one is refused, and so is what is not taken for its sake.
type AllOrNone struct {
	Before bool // takes what comes before that lock
}

// errLeft is the result of a member that did not run.
var errLeft = errors.New("to be sent alone")

// joins reports whether a call may be a member of a group: those that cannot be the common case are not. A release may
// be that leaves a tombstone where the hold is not there: then the group leaves it, and it is sent again alone.
func (s *Script) joins(args []string) bool {
	if s.group == nil || s.name == scripts.Release {
		return s.group != nil && len(args) <= 2
	}
	return wire.Asked(args).IsPlain()
}

// grouping makes the groups of a batch. Its arrays serve batch after batch of a sender: the client copies the keys and
// the arguments into its commands.
type grouping struct {
	releases, acquires []*Call
	calls              []Call         // with groups in place of their members
	asked              map[string]int // the acquires of each lock
	text               []string       // keys and arguments of the groups
}

// clear forgets the calls of the batch.
func (g *grouping) clear() {
	clear(g.releases)
	clear(g.acquires)
	clear(g.calls)
	clear(g.asked)
	clear(g.text)
	g.releases, g.acquires, g.calls, g.text = g.releases[:0], g.acquires[:0], g.calls[:0], g.text[:0]
}

// room returns an empty slice with room for so many texts.
func (g *grouping) room(n int) []string {
	at := len(g.text)
	if cap(g.text)-at < n {
		g.text, at = make([]string, 0, max(n, 2*cap(g.text))), 0 // earlier groups keep the array before
	}
	g.text = g.text[:at+n]
	return g.text[at : at : at+n]
}

// ofSets returns the calls of a batch with groups in place of the members of sets.
func (g *grouping) ofSets(m *Master, calls []Call) (all []Call) {
	var set []*Call
	end := func() {
		if len(set) > 1 {
			all, set = append(all, g.group(m, set)), nil
		}
		for _, c := range set {
			all = append(all, *c)
		}
		set = nil
	}
	for i := range calls {
		c := &calls[i]
		if len(set) > 0 && (c.AllOrNone != set[0].AllOrNone || len(set) == groupMost) {
			end()
		}
		if c.AllOrNone != nil && c.Script.joins(c.Args) && (len(set) == 0 || c.like(set[0])) {
			set = append(set, c)
		} else {
			all = append(all, *c)
		}
	}
	end()
	return all
}

// of returns the calls of a batch with groups in place of their members. A group has releases and then acquires, and
// comes before other acquires, which may be for what it releases. Without a group the calls keep their order.
//
// Several acquires of one lock are in no group. The group would pass an earlier one of them, and one that it leaves
// would arrive a round trip after a later one.
func (g *grouping) of(n *Node, calls []Call) []Call {
	g.count(calls)
	fits := func(c *Call, members []*Call) bool { return len(members) == 0 || c.like(members[0]) }
	for i := range calls {
		switch c := &calls[i]; {
		case !c.Script.joins(c.Args) || c.AllOrNone != nil || !fits(c, g.releases) || !fits(c, g.acquires),
			g.asked[c.Keys[0]] > 1 && c.Script.name == scripts.Acquire:
			g.calls = append(g.calls, *c)
		case c.Script.name == scripts.Release:
			g.releases = append(g.releases, c)
		default:
			g.acquires = append(g.acquires, c)
		}
	}
	g.releases = append(g.releases, g.acquires...)
	members := g.releases
	if len(members) < groupLeast || !n.groups(len(members)) {
		return calls
	}
	at := slices.IndexFunc(g.calls, func(c Call) bool { return c.Script.name == scripts.Acquire || c.members != nil })
	if at < 0 {
		at = len(g.calls)
	}
	for part := range slices.Chunk(members, groupMost) {
		if len(part) < groupLeast {
			for _, c := range part {
				g.calls = append(g.calls, *c)
			}
		} else {
			g.calls = slices.Insert(g.calls, at, g.group(n.m, part))
			at++
		}
	}
	return g.calls
}

// count counts the acquires of each lock.
func (g *grouping) count(calls []Call) {
	if g.asked == nil {
		g.asked = make(map[string]int)
	}
	for i := range calls {
		c := &calls[i]
		for _, member := range c.members {
			g.asked[member.Keys[0]]++
		}
		if c.Script.name == scripts.Acquire {
			g.asked[c.Keys[0]]++
		}
	}
}

// like reports whether two calls may be members of one group: they have the same vote but for the proposal, and two
// acquires have the same terms.
func (c *Call) like(other *Call) bool {
	a, b, acquires := c.Vote, other.Vote, c.Script.name == scripts.Acquire && other.Script.name == scripts.Acquire
	a.Proposal, b.Proposal = 0, 0
	return a == b && c.Script.salt == other.Script.salt && (!acquires || wire.Asked(c.Args).IsLike(other.Args))
}

// group returns the call of a group with these members.
func (g *grouping) group(m *Master, members []*Call) Call {
	keys, args := g.room(len(members)+1), append(g.room(2+2*len(members)), "", "")
	acquires, queues := 0, false
	for _, c := range members {
		keys, args = append(keys, c.Keys[0]), append(args, c.Args[0])
		if c.Script.name == scripts.Acquire {
			args[1], queues = c.Args[1], m.cfg.Quarantine == 0 && wire.Asked(c.Args).Queues()
			acquires++
		}
	}
	switch set := members[0].AllOrNone; {
	case set == nil:
		args[0] = strconv.Itoa(len(members) - acquires)
		if queues {
			args[0] += string(wire.ByArrival)
		}
	case set.Before:
		args[0] = "before"
	default:
		args[0] = "none"
	}
	if m.cfg.Quarantine > 0 {
		keys = append(keys, m.cfg.MarkerKey)
		for _, c := range members[len(members)-acquires:] {
			args = append(args, c.Vote.ProposalArg())
		}
	}
	vote := members[0].Vote
	vote.Proposal = 0
	return Call{Script: members[0].Script.group, Keys: keys, Vote: vote, Args: args, members: members}
}

// divide completes the members of a group with their results. A server that refuses it has run nothing of it.
func divide(n *Node, r rueidis.RedisResult, members []*Call, complete func(*Call, rueidis.RedisResult)) {
	kind, left := kindOf(r.Error()), 0
	if kind == crossSlot {
		n.separate(r.Error())
	}
	parts, _ := r.ToArray()
	for i, c := range members {
		its, isLeft := r, kind != notRefused
		if len(parts) == len(members) {
			its = rueidis.NewResult(parts[i], nil)
		}
		if len(parts) == len(members) && parts[i].IsString() { // else it is mostly a number
			line, _ := parts[i].ToString()
			isLeft = isLeft || line == ""
		}
		if isLeft {
			its = rueidis.NewErrorResult(errLeft)
			left++
		}
		complete(c, its)
	}
	if 2*left > len(members) {
		n.ungrouped.Store(ungroupedFor)
	}
}
