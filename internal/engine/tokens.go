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

// observe notes a token, so that the next proposal is beyond it.
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
func (t *tokens) proposal() int64 {
	if t.single {
		return 0
	}
	return max((t.clock.Now().Wall + proposalLead + t.longestRoundTrip()).Microseconds(), int64(t.largest.Load())+1)
}
