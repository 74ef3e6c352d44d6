package engine

import (
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/wire"
)

// A lease with a minimum leaves its hold behind: the masters keep it as ended until the minimum has passed since the
// first grant. That is so however the lease ends, by its caller, by Close, or by a loss. So that it is also so if the
// process dies, an acquire and each renewal ask for the minimum where it is longer than the TTL. A hold that no caller
// had, such as one of several locks of which another is not granted, or that of an adoption that fails, and a hold that
// a conversion replaces, leave nothing behind.

// minimum is what a hold leaves behind; the zero value is nothing.
type minimum struct {
	least time.Duration
	until time.Duration // by the monotonic clock
}

// minimum returns what the hold leaves behind, under mu, once it has ended.
func (h *hold) minimum() minimum {
	if h.terms.MinHold == 0 || h.extra.firstGrant == 0 || h.unclaimed || !h.isStanding() {
		return minimum{}
	}
	return minimum{h.terms.MinHold, h.e.clock.Now().Mono + h.minimumLeft()}
}

// minimumLeft returns for how long from now the minimum of the lease lasts at most: all of it before the first grant.
// It counts from when this process learnt of that grant, which is later than the grant, and with a clock that may run
// faster than the masters' clocks. So it is no shorter than what a master counts from its own grant.
func (h *hold) minimumLeft() time.Duration {
	least := h.terms.MinHold
	if least == 0 || h.extra.firstGrant == 0 {
		return least
	}
	elapsed := h.e.clock.Now().Mono - h.extra.firstGrant
	return max(least-elapsed+time.Duration(float64(elapsed)*h.e.cfg.Drift)+clock.Rounding, 0)
}

// ttlArg returns for how long a master is to keep the hold from now on: for the TTL, or for the minimum if that is
// longer. The trust in the hold is that of the TTL.
func (h *hold) ttlArg() wire.Millis {
	if h.extra != nil {
		if left := max(h.ttl(), h.minimumLeft()); left != h.terms.TTL {
			return wire.FormatMillis(left)
		}
	}
	return h.terms.ttlArg
}
