package engine

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// tokens proposes what scripts mint tokens from.
type tokens struct {
	clock     clock.Clock
	masters   []*transport.Master // a single one takes its own clock instead
	marker    string              // a key that every master has
	largest   atomic.Uint64       // seen of any lock that no cohort has
	roundTrip atomic.Int64        // the longest of late
}

// proposalLead puts proposals ahead of the clocks of the masters, which a request reaches a little later: one without a
// counter takes its own clock if that is further on, and their different answers would have to be raised to one. Slow
// links add their round trip.
const proposalLead = 50 * time.Millisecond

// tokenLead bounds by how much proposals and blocks of tokens run ahead of the masters' clocks: less than a master
// allows, which is allowedLead. Where the masters' own bound is met, each of several cuts the token off at its own
// clock, so that their answers do not agree and cannot be raised to one either. The rest is for what is not known of
// the clocks.
const (
	tokenLead   = 800 * time.Millisecond
	allowedLead = time.Second // as in vote.lua and raise.lua
)

// blockMin is what a block may have all the same, so that a process does not ask anew for each of its goroutines. What
// is used in 16 us is less than the round trip in which it is had, so blocks of that size do not run ahead.
const blockMin = 16

// affordable returns how many of n tokens a block may have now, of a lock of which that token has been seen. A single
// master has nobody to agree with.
func (t *tokens) affordable(n int, seen fencing.Token) int {
	if t.single() || n == 0 {
		return n
	}
	_, most := t.bounds()
	return int(min(int64(n), max(most-t.proposalAfter(seen), blockMin)))
}

func (t *tokens) single() bool { return len(t.masters) == 1 }

// bounds returns the least and the most that a proposal should be, in microseconds, so that a quorum can mint it. This
// process's own clock has no part in that unless no other is known: it may be ahead or behind.
//
// A master mints a proposal that is not behind its clock, or behind its counter, and not too far ahead of its clock. So
// the least is ahead of as many clocks as make a quorum, the most behind ones that are close enough to each other.
// Where none are, what a quorum has counted may still be less than the most that a quorum allows.
func (t *tokens) bounds() (least, most int64) {
	var array [9]int64
	clocks := t.serverClocks(array[:0])
	slices.Sort(clocks)
	quorum := min(len(t.masters)/2+1, len(clocks))
	lead := (proposalLead + t.longestRoundTrip()).Microseconds()
	most = clocks[len(clocks)-quorum] + tokenLead.Microseconds()
	for i, furthest := range clocks[quorum-1:] {
		if furthest+lead <= clocks[i]+tokenLead.Microseconds() {
			return furthest + lead, most
		}
	}
	return most, most
}

// serverClocks appends what the clocks of the masters show, by estimate, in microseconds. One that does not answer will
// not vote, so its clock counts only where fewer than a quorum answer.
func (t *tokens) serverClocks(clocks []int64) []int64 {
	now := t.clock.Now()
	for _, all := range []bool{false, true} {
		clocks = clocks[:0]
		for _, m := range t.masters {
			micros, known := m.ServerAbout(t.marker, now)
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

// observe notes a token, so that the next proposal is beyond it. That is no promise, since another process has seen
// others; it saves raises. A cohort's tokens run ahead of the clock, so they are noted with its lock only
// (Request.Seen): else the blocks of one lock would leave no room for those of others.
func (t *tokens) observe(token fencing.Token) {
	for {
		seen := t.largest.Load()
		if uint64(token) <= seen || t.largest.CompareAndSwap(seen, uint64(token)) {
			return
		}
	}
}

// observeRoundTrip notes how long an answer took, if that is long, and forgets slow ones by and by.
func (t *tokens) observeRoundTrip(d time.Duration) {
	t.roundTrip.Store(max(int64(d), t.roundTrip.Load()*7/8))
}

// longestRoundTrip returns the longest that answers took of late.
func (t *tokens) longestRoundTrip() time.Duration { return time.Duration(t.roundTrip.Load()) }

// proposal is the floor of the tokens that a script mints, the same for all masters, so that their answers agree, and
// beyond every token that this engine has seen, unless those are too far ahead. A single master takes its own clock
// instead.
//
// It is for agreement and not for safety. One that is behind the masters' clocks is too little (case floor-no-end), and
// one that is far ahead too much (case floor-no-cap); so a master takes the end of its last quarantine where that is
// more, and never more than a second beyond its own clock.
func (t *tokens) proposal() int64 {
	if t.single() {
		return 0
	}
	least, most := t.bounds()
	return min(max(least, int64(t.largest.Load())+1), most)
}

// proposalAfter is the proposal for a lock of which that token has been seen. It is beyond that in any case: a master
// that has missed the grant would mint less than the others.
func (t *tokens) proposalAfter(seen fencing.Token) int64 {
	if t.single() {
		return 0
	}
	return max(t.proposal(), int64(seen)+1)
}

// reach returns the largest token that a master lets a grant be raised to now, by estimate; any where its clock is not
// known.
func (t *tokens) reach(master int) fencing.Token {
	micros, known := t.masters[master].ServerAbout(t.marker, t.clock.Now())
	if !known {
		return fencing.MaxToken
	}
	return fencing.Token(micros + allowedLead.Microseconds())
}
