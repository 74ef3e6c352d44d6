package engine

import (
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// tokens proposes what a script mints a token from.
type tokens struct {
	clock     clock.Clock
	single    bool          // one master takes its own clock instead
	largest   atomic.Uint64 // seen of any lock
	roundTrip atomic.Int64  // the longest of late
}

// proposalLead puts proposals ahead of the clocks of the masters, which a request reaches a little later: one without a
// counter takes its own clock if that is further on, and their different answers would have to be raised to one. Slow
// links add their round trip.
const proposalLead = 50 * time.Millisecond

// blockLead bounds by how much the blocks of tokens of an engine run ahead of its clock: half of what a master allows.
// Where the masters' own bound is met, each of several cuts the block off at its own clock, so that their answers do
// not agree and cannot be raised to one either.
const blockLead = 500 * time.Millisecond

// affordable returns how many of n tokens a block may have now. A single master has nobody to agree with.
func (t *tokens) affordable(n int) int {
	if t.single || n == 0 {
		return n
	}
	most := (t.clock.Now().Wall + blockLead).Microseconds() - int64(t.largest.Load())
	return int(min(int64(n), max(most, 1)))
}

// observe notes a token, so that the next proposal is beyond it. That is no promise, since another process has seen
// others; it saves raises among the locks of one process.
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
