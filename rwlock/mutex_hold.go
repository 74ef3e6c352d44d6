package rwlock

import (
	"context"
	"errors"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
)

// remoteHold is what this process has of an RWMutex's lock on Redis: one lease, of one local writer or of all local
// readers. It lasts until the last of them has unlocked, also when the lease was lost before.
type remoteHold struct {
	lease *Lease
	meta  string
	since time.Time
	limit *readLimit // of readers under WithMaxHold
	once  bool       // WithoutRenewal: the lease lasts for the TTL only
}

// ask acquires the lock from Redis, for the leader of the cohort and those who enter with it.
func (m *RWMutex) ask(ctx context.Context, mode Mode, entry engine.Entry) (*remoteHold, error) {
	terms := m.terms
	if mode == Read {
		terms = m.readTerms
	}
	lease, err := m.locker.request(ctx, engine.Request{Name: m.name, Mode: mode, Entry: entry, Terms: terms})
	if err != nil {
		return nil, err
	}
	h := &remoteHold{lease: lease, meta: m.settings.Meta, since: time.Now(), once: !m.settings.Renew}
	if mode == Read && m.settings.MaxHold > 0 {
		h.limit = newReadLimit(lease, m.settings.MaxHold)
	}
	return h, nil
}

// err returns nil while the hold is trusted.
func (h *remoteHold) err() error {
	if h.limit != nil {
		if err := h.limit.err(); err != nil {
			return err
		}
	}
	return h.lease.Err()
}

// lost returns the *LostError of a hold that was lost, or nil.
func (h *remoteHold) lost() error {
	if err := h.err(); errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// renewed reports whether the hold lasts for as long as readers stand in it. If it does not, a reader that joins has to
// extend it, or it would be ended by the one that came first.
func (h *remoteHold) renewed() bool { return h.limit == nil && !h.once }

// extend gives the hold the time that a new one would have, and reports whether it did. Under WithoutRenewal that costs
// one command.
func (h *remoteHold) extend(ctx context.Context) bool {
	if h.once && h.lease.Renew(ctx) != nil {
		return false
	}
	return (h.limit == nil || h.limit.extend()) && h.err() == nil
}

func (h *remoteHold) context(parent context.Context) context.Context {
	if h.limit != nil {
		return h.limit.context(parent)
	}
	return h.lease.Context(parent)
}

func (h *remoteHold) release(ctx context.Context) error {
	var lost error
	if h.limit != nil {
		lost = h.limit.stop()
	}
	err := h.lease.Release(ctx)
	if lost != nil {
		return lost
	}
	return err
}

// holder shows the hold as Inspect would, for the error of one that it kept out.
func (h *remoteHold) holder() *Holder {
	return &Holder{
		Owner: h.lease.Owner(), Hold: h.lease.inner.Hold(), Meta: h.meta, Mode: h.lease.Mode(), Count: 1,
		Remaining: max(0, time.Until(h.lease.Deadline())), Held: time.Since(h.since),
	}
}
