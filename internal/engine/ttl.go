package engine

import (
	"math"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
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

// minimum returns what the hold leaves behind, once it has ended.
func (k *keeping) minimum() minimum {
	h := k.of
	if h.terms.MinHold == 0 || h.extra.firstGrant == 0 || h.unclaimed || !h.isStanding() {
		return minimum{}
	}
	return minimum{h.terms.MinHold, h.e.clock.Now().Mono + k.minimumLeft()}
}

// minimumLeft returns for how long from now the minimum of the lease lasts at most: all of it before the first grant.
// It counts from when this process learnt of that grant, which is later than the grant, and with a clock that may run
// faster than the masters' clocks. So it is no shorter than what a master counts from its own grant.
func (k *keeping) minimumLeft() time.Duration {
	h := k.of
	least := h.terms.MinHold
	if least == 0 || h.extra.firstGrant == 0 {
		return least
	}
	elapsed := h.e.clock.Now().Mono - h.extra.firstGrant
	return max(least-elapsed+time.Duration(float64(elapsed)*h.e.cfg.Drift)+clock.Rounding, 0)
}

// changedTTL is the TTL that SetTTL has given to a hold. A renewal with an earlier, shorter one may arrive after a
// renewal with this one, and set the expiry back.
type changedTTL struct {
	ttl      time.Duration
	until    time.Duration // from then on, by the monotonic clock, no renewal from before the change arrives
	shortest time.Duration // of those that may arrive; math.MaxInt64 if all are answered
	longest  time.Duration // that a master was ever asked for
}

// ttl returns for how long a renewal extends the hold.
func (k *keeping) ttl() time.Duration {
	h := k.of
	if h.extra == nil || h.extra.changed == nil {
		return h.terms.TTL
	}
	return h.extra.changed.ttl
}

// longestTTL returns for how long a master may keep the hold after the last request.
func (k *keeping) longestTTL() time.Duration {
	h := k.of
	if h.extra == nil || h.extra.changed == nil {
		return h.terms.TTL
	}
	return h.extra.changed.longest
}

// outlived is for how long after a change of the TTL a renewal from before it may arrive.
const outlived = lateness + batchTimeout

// trustedTTL returns for how long from its sending a renewal is trusted that has just been answered: for its TTL, or
// for a shorter one of a renewal that may still arrive.
func (k *keeping) trustedTTL(ttl time.Duration, now clock.Instant) time.Duration {
	h := k.of
	if h.extra == nil || h.extra.changed == nil || now.Mono >= h.extra.changed.until {
		return ttl
	}
	return min(ttl, h.extra.changed.shortest)
}

// noteUnanswered records that a renewal with this TTL may arrive later if it failed without an answer. Every answer to
// the script renew is passed here: the other scripts move no expiry of a grant that has the lease's token. A renewal
// with the TTL of now, or with a longer one, sets no expiry back.
func (k *keeping) noteUnanswered(err error, ttl time.Duration, now clock.Instant) {
	h := k.of
	if err == nil || transport.DidNotRun(err) {
		return
	}
	h.e.unansweredAt.Store(int64(now.Mono))
	if ttl < k.ttl() {
		c := h.extra.changed
		c.shortest, c.until = min(c.shortest, ttl), max(c.until, now.Mono+lateness)
	}
}

// changeTTL sets the TTL of all renewals from now on. Trust in the hold falls with the first of them. A renewal of this
// hold may still arrive only if one of this engine had no answer lately.
func (k *keeping) changeTTL(ttl time.Duration, now clock.Instant) {
	h := k.of
	if h.extra == nil {
		h.extra = &extra{limit: clock.Never}
	}
	c := &changedTTL{
		ttl: ttl, until: now.Mono + outlived, shortest: math.MaxInt64, longest: max(ttl, k.longestTTL()),
	}
	if before := h.extra.changed; before != nil && now.Mono < before.until {
		c.shortest = before.shortest
	}
	if at := time.Duration(h.e.unansweredAt.Load()); at > 0 && now.Mono < at+outlived {
		c.shortest = min(c.shortest, k.ttl())
	}
	h.extra.changed = c
}
