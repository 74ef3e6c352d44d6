package engine

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

type masters []*transport.Master

func (all masters) quorum() int { return len(all)/2 + 1 }

// lost reports whether so many masters satisfy is that the others are no quorum.
func (all masters) lost(is func(*transport.Master) bool) bool {
	n := 0
	for _, m := range all {
		if is(m) {
			n++
		}
	}
	return 2*n >= len(all)
}

// subscriptionDown reports whether so many masters cannot send the hand-off messages of this lock that no quorum can.
func (all masters) subscriptionDown(lock string) bool {
	return all.lost(func(m *transport.Master) bool { return m.SubscriptionDown(lock) })
}

// route returns how messages about this lock reach this engine. With several masters the route is uncounted until the
// engine listens to each of them.
func (all masters) route(lock string) (route wire.Route) {
	for _, m := range all {
		if route = m.Route(lock); route.IsUncounted() {
			break
		}
	}
	return route
}

// refusal derives what keeps a quorum from carrying out a call from the causes of the masters that did not. forGood
// reports that so many refusals are permanent that no quorum can come about by asking again.
func (all masters) refusal(causes []NodeFailure) (kind Kind, forGood bool) {
	conflicts, shorts, permanent := 0, 0, 0
	for _, cause := range causes {
		_, short := unreplicated(cause.Err)
		switch {
		case short:
			shorts++
		case transport.Conflict(cause.Err):
			conflicts++
		case all[cause.Index].Permanent(cause.Err):
			permanent++
		}
	}
	switch spare := len(all) - all.quorum(); {
	case conflicts+shorts+permanent <= spare:
		return NoQuorum, false
	case conflicts > 0:
		return Conflict, conflicts+permanent > spare
	case shorts > 0:
		return Short, permanent > spare
	default:
		return NoQuorum, true
	}
}

type scriptSets []atomic.Pointer[scriptSet]

func (all scriptSets) of(m *transport.Master) *scriptSet { return all[m.Index].Load() }

// salt gives a master's scripts digests for its server process. That process restarts, say, and a request made for it
// leaves over a new connection: the script cache is new too, so the digest is unknown, the request is sent again in
// full, and the master compares the run id. Package masterset says what protects if that fails. Clients that may not
// read the run id have scripts of their own: the scripts that they load prove nothing about a restart.
func (all scriptSets) salt(master int, process string) {
	if of := &all[master]; of.Load().salt != process {
		of.Store(newScriptSet(process))
	}
}

// scriptSet holds the scripts for one master, salted with its identity. It is immutable. The engine replaces it as a
// whole when another server answers as the master, and a call keeps the script that it began with.
type scriptSet struct {
	salt string

	acquire, join, renew, refresh, release, raise, yield, regain, breaks, inspect *transport.Script

	plainRelease *transport.Script // of a write hold without a named owner and a block
	acquireAlone *transport.Script // in no group
}

// newScriptSet makes the scripts with the given salt: "" for a single master, and before the set is known.
func newScriptSet(salt string) *scriptSet {
	script := func(name scripts.Name) *transport.Script { return transport.NewScript(name, salt) }
	acquire := script(scripts.Acquire)
	return &scriptSet{
		salt:    salt,
		acquire: acquire, acquireAlone: acquire.Alone(), join: script(scripts.Join), renew: script(scripts.Renew),
		refresh: script(scripts.Refresh), release: script(scripts.Release), raise: script(scripts.Raise),
		yield: script(scripts.Yield), regain: script(scripts.Regain), breaks: script(scripts.Break),
		inspect: script(scripts.Inspect), plainRelease: script(scripts.Release).Grouped(),
	}
}

// postings are calls to several masters, to be posted when the mutex under which they were made is unlocked.
type postings []posting

type posting struct {
	m    *transport.Master
	call transport.Call
}

// fewMasters: the postings to so many masters are on the stack of a call.
const fewMasters = 5

func (all postings) post() {
	for i := range all {
		all[i].m.Post(all[i].call)
	}
}

// tokens proposes the token floor, from which scripts mint tokens.
type tokens struct {
	clock     clock.Clock
	masters   []*transport.Master // a single master uses its own clock instead
	marker    string              // a key that every master has
	largest   atomic.Uint64       // the largest token seen, except tokens of shared holds
	roundTrip atomic.Int64        // the longest recent one, in ns
	ahead     atomic.Int64        // how far the masters' clocks are ahead of this process's own, in ns; see followClocks
}

// proposalLead puts proposals ahead of the masters' clocks, because a request arrives a little later. A master without
// a counter uses its own clock if that is further ahead, and then the masters' answers differ and have to be raised to
// one token. On slow links the round trip is added.
const proposalLead = 50 * time.Millisecond

// tokenLead bounds how far proposals and token blocks run ahead of the masters' clocks. It is less than allowedLead,
// which a master permits. Beyond that, each of several masters cuts the token off by its own clock, so that their
// answers do not agree and cannot be raised to one token either. The difference between the two covers the uncertainty
// about the clocks.
const (
	tokenLead   = 800 * time.Millisecond
	allowedLead = time.Second // as in vote.lua and raise.lua
)

// blockMin tokens are always allowed in a block, so that a request serves several goroutines. They last for 16 us of
// the clock, which is less than the round trip of the next request, so such blocks never run ahead.
const blockMin = 16

// budget returns how many of n tokens a block may have now, for a lock with the largest known token seen. A single
// master needs no agreement.
func (t *tokens) budget(n int, seen fencing.Token) int {
	if len(t.masters) == 1 || n == 0 {
		return n
	}
	_, most := t.bounds()
	return int(min(int64(n), max(most-t.proposalAfter(seen), blockMin)))
}

// bounds returns the least and the most that a proposal should be, in microseconds, so that a quorum mints it. A master
// mints a proposal that its counter, or without one its clock, has not passed, and that is at most a second ahead of
// that clock.
//
// The quorum whose clocks are closest to each other decides. Three masters show 10.0, 10.1 and 14.0 s, say: the first
// two do. most is what all of the quorum permit, 10.8 s; least is ahead of their clocks, and of others that most
// permits: 10.15 s. Where clocks are too far apart, least is most: masters further ahead mint their clocks, and those
// behind are raised. This process's own clock is used only if no master's is known.
func (t *tokens) bounds() (least, most int64) {
	var array [9]int64
	clocks := t.serverClocks(array[:0])
	slices.Sort(clocks)
	quorum := min(len(t.masters)/2+1, len(clocks))
	lead := (proposalLead + t.longestRoundTrip()).Microseconds()
	closest := int64(math.MaxInt64)
	for i, furthest := range clocks[quorum-1:] {
		if apart := furthest - clocks[i]; apart < closest {
			closest, most = apart, clocks[i]+tokenLead.Microseconds()
			least = min(furthest+lead, most)
		}
	}
	for _, micros := range clocks {
		if micros+lead <= most {
			least = max(least, micros+lead)
		}
	}
	return least, most
}

// serverClocks appends estimates of the masters' clocks, in microseconds. A master that does not answer will not vote,
// so its clock counts only if fewer than a quorum answer.
func (t *tokens) serverClocks(clocks []int64) []int64 {
	now := t.clock.Now()
	for _, all := range []bool{false, true} {
		clocks = clocks[:0]
		for _, m := range t.masters {
			micros, known := m.EstimateServerTime(t.marker, now)
			if known && (all || !m.At(t.marker).Failing()) {
				clocks = append(clocks, micros)
			}
		}
		if len(clocks) > len(t.masters)/2 {
			return clocks
		}
	}
	if len(clocks) == 0 {
		clocks = append(clocks, now.Wall.Microseconds())
	}
	return clocks
}

func (t *tokens) longestRoundTrip() time.Duration { return time.Duration(t.roundTrip.Load()) }

// proposal returns the token floor that is sent to all masters. It is the same for all of them, so that their answers
// agree, and larger than every token that this engine has seen, unless those tokens are too far ahead. A single master
// uses its own clock instead.
//
// The proposal serves agreement and not safety. A proposal behind the masters' clocks is too small (case floor-no-end),
// and a proposal far ahead is too large (case floor-no-cap). A master therefore uses the end of its last quarantine if
// that is larger, and never more than a second beyond its own clock.
func (t *tokens) proposal() int64 {
	if len(t.masters) == 1 {
		return 0
	}
	least, most := t.bounds()
	return min(max(least, int64(t.largest.Load())+1), most)
}

// proposalAfter returns the proposal for a lock with the largest known token seen. It is always larger than seen,
// because a master that missed that grant would mint a smaller token than the masters that have it.
func (t *tokens) proposalAfter(seen fencing.Token) int64 {
	if len(t.masters) == 1 {
		return 0
	}
	return max(t.proposal(), int64(seen)+1)
}

// reach returns an estimate of the largest token to which the master permits a raise now. It returns fencing.MaxToken
// if the master's clock is not known.
func (t *tokens) reach(master int) fencing.Token {
	micros, known := t.masters[master].EstimateServerTime(t.marker, t.clock.Now())
	if !known {
		return fencing.MaxToken
	}
	return fencing.Token(micros + allowedLead.Microseconds())
}
