package engine

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// tokens proposes what a script mints a token from.
type tokens struct {
	clock     clock.Clock
	single    bool          // one master takes its own clock instead
	largest   atomic.Uint64 // seen of any lock that no cohort has
	roundTrip atomic.Int64  // the longest of late
}

// proposalLead puts proposals ahead of the clocks of the masters, which a request reaches a little later: one without a
// counter takes its own clock if that is further on, and their different answers would have to be raised to one. Slow
// links add their round trip.
const proposalLead = 50 * time.Millisecond

// blockLead bounds by how much blocks of tokens run ahead of the masters' clocks: less than a master allows. Where the
// masters' own bound is met, each of several cuts the block off at its own clock, so that their answers do not agree
// and cannot be raised to one either. The rest is for what is not known of the clocks.
const blockLead = 800 * time.Millisecond

// blockMin is what a block may have all the same, so that a process does not ask anew for each of its goroutines. What
// is used in 16 us is less than the round trip in which it is had, so blocks of that size do not run ahead.
const blockMin = 16

// affordable returns how many of n tokens a block may have now, of a lock of which that token has been seen. A single
// master has nobody to agree with. This process's own clock does not count where the masters' are known: it may be
// behind, and whoever has the lock in turn with it ahead.
func affordable(e *Engine, lock string, n int, seen fencing.Token) int {
	if e.tokens.single || n == 0 {
		return n
	}
	room := quorumAbout(e, lock) + blockLead.Microseconds() - e.tokens.proposalAfter(seen)
	return int(min(int64(n), max(room, blockMin)))
}

// quorumAbout estimates what the clocks of a quorum show at least, in microseconds. A master whose clock is not known
// is taken to have this process's.
func quorumAbout(e *Engine, lock string) int64 {
	now := e.clock.Now()
	clocks := make([]int64, len(e.masters))
	for i, m := range e.masters {
		var known bool
		if clocks[i], known = m.ServerAbout(lock, now); !known {
			clocks[i] = now.Wall.Microseconds()
		}
	}
	slices.Sort(clocks)
	return clocks[len(clocks)-e.quorum()]
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
// beyond every token that this engine has seen. A single master takes its own clock instead.
//
// It is for agreement and not for safety. A client whose clock is behind proposes too little (case floor-no-end), and
// one whose clock is ahead too much (case floor-no-cap); so a master takes the end of its last quarantine where that is
// more, and never more than a second beyond its own clock.
func (t *tokens) proposal() int64 {
	if t.single {
		return 0
	}
	return max((t.clock.Now().Wall + proposalLead + t.longestRoundTrip()).Microseconds(), int64(t.largest.Load())+1)
}

// proposalAfter is the proposal for a lock of which that token has been seen.
func (t *tokens) proposalAfter(seen fencing.Token) int64 {
	if t.single {
		return 0
	}
	return max(t.proposal(), int64(seen)+1)
}
