package rwlock

import (
	"context"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/ctxerr"
	"github.com/seed74116694/fencelock/internal/engine"
)

// acquire is Lock, TryLock, RLock and TryRLock. It first refuses a call that cannot succeed, without a request: an
// unusable RWMutex, a context that has ended, a section that would wait for itself. Then it tries to enter without a
// command, and only then it queues.
func (m *RWMutex) acquire(ctx context.Context, mode Mode, entry engine.Entry) error {
	if m.isUnusable() {
		return m.unusable()
	}
	if ctx.Err() != nil {
		return m.notAcquired(mode, 0, ctxerr.Cause(ctx))
	}
	if entry == engine.Try {
		return m.try(ctx, mode)
	}
	if err := m.locker.nested(ctx, m.name, ""); err != nil {
		return err
	}
	if m.enter(mode) {
		return nil
	}
	return m.wait(ctx, mode)
}

// enter admits a goroutine that need not wait: under a remote hold without a holder, or together with readers. It
// checks trust once, at the entrance: a lease that ends right after that ends the contexts of the section, before a
// goroutine elsewhere is admitted.
func (m *place) enter(mode Mode) bool {
	h := m.remote.Load()
	if h == nil {
		return false
	}
	now := m.locker.engine.Now()
	if !h.lease.inner.Trusted(now) {
		return false
	}
	if mode == Read && m.local.readers.join() {
		return true
	}
	m.mu.Lock()
	defer m.unlock()
	if m.remote.Load() != h || !m.local.unclaimed() || !m.local.empty() {
		return false
	}
	return m.begin(h, mode, now)
}

// unlock unlocks mu. Before that it decides whether readers may join the current readers from then on: not while a
// waiter of this process or of another one is ahead of them, and not if they have to extend the lease.
func (m *place) unlock() {
	if m.local.readers.number() > 0 {
		h := m.remote.Load()
		m.local.readers.open(m.local.unclaimed() && h.admitsMore() && !m.extends(h))
	}
	m.mu.Unlock()
}

// extends reports whether a reader that joins has to extend the time of the current readers. Otherwise the time of the
// first reader would end the new one too.
func (m *place) extends(h *remoteHold) bool { return h.once || m.settings.MaxHold > 0 }

// begin admits a goroutine under a remote hold without a holder, under mu, if the hold serves its mode. If it does not,
// for example a read lease and a writer, the goroutine queues and leads, and the leader releases the hold first.
func (m *place) begin(h *remoteHold, mode Mode, now clock.Instant) bool {
	serves := h.serves(mode, now)
	if serves {
		m.in.Store(h.begin(m, mode))
		m.local.enter(mode)
	}
	return serves
}

// try is a single attempt: it asks Redis, once, if no goroutine of this process is in the way. Goroutines that come
// during the attempt wait for it, as for any leader.
func (m *RWMutex) try(ctx context.Context, mode Mode) error {
	if m.enter(mode) {
		return nil
	}
	begun, w, leads := time.Now(), newWaiter(mode), false
	err := m.use(func() { leads = m.local.tryLead(w) })
	if err != nil {
		return err
	}
	if !leads {
		return m.notAcquired(mode, 0, nil)
	}
	err = (&bid{&m.place, w, engine.Try}).lead(ctx)
	if err == errNotJoined {
		m.giveUp(w)
		return m.notAcquired(mode, 0, nil)
	}
	return asWaited(err, time.Since(begun), ctx, ctx)
}

// use lets one more goroutine use the RWMutex. It registers the RWMutex as the one in use under its name, and makes
// sure that the process uses no other one with that name. An RWMutex that only lingers gives way.
func (m *place) use(enter func()) error {
	for {
		other, err := m.tryUse(enter)
		if err == nil || !other.stopLingering() {
			return err
		}
	}
}

// tryUse claims the name for the first goroutine that uses the RWMutex, and calls enter under the same mu, so that the
// RWMutex is not unused in between. other is the RWMutex that is in use instead.
func (m *place) tryUse(enter func()) (other *place, err error) {
	m.mu.Lock()
	defer m.unlock()
	if m.local.idle() {
		if other, err = m.locker.mutexes.claim(m); err != nil {
			return other, err
		}
	}
	enter()
	return nil, nil
}

// unused is called, under mu, after each change that may leave the RWMutex unused. It then gives up the name, and an
// RWMutex with the same name and other options may be used: no goroutine uses this one, and the process has no hold on
// Redis through it.
func (m *place) unused() {
	if m.local.idle() && m.remote.Load() == nil {
		m.locker.mutexes.disclaim(m)
	}
}

// wait queues in this process and returns when the lock is held or cannot be acquired. It may lead several times: if it
// could not join the current readers, it steps back into its place and is woken when they have left.
func (m *RWMutex) wait(ctx context.Context, mode Mode) error {
	begun := time.Now()
	within, cancel := m.limited(ctx)
	defer cancel()
	w := newWaiter(mode)
	b := &bid{&m.place, w, engine.Wait}
	if err := m.use(func() { m.local.enqueue(w) }); err != nil {
		return err
	}
	for {
		select {
		case <-w.turn:
		case <-within.Done():
			if m.giveUp(w) {
				return m.notAcquired(mode, time.Since(begun), waitingEnd(ctx, within))
			}
		case <-m.locker.mutexes.closed:
			if m.giveUp(w) {
				return fmt.Errorf("%w: lock %q", ErrClosed, m.name)
			}
		}
		if w.stage == admitted {
			return nil
		}
		if m.isOver(within, begun) && m.giveUp(w) { // no request was sent to Redis, so Redis is not what failed
			return m.notAcquired(mode, time.Since(begun), waitingEnd(ctx, within))
		}
		if err := b.lead(within); err != errNotJoined {
			return asWaited(err, time.Since(begun), ctx, within)
		}
	}
}

// isOver reports whether within has ended; begun is the time from which its limit counts. Goroutines that began
// together reach their limits together, and a goroutine that gives up may pass on its place before the timer of the
// next goroutine has fired.
func (m *RWMutex) isOver(within context.Context, begun time.Time) bool {
	if limit := m.settings.MaxWait; limit > 0 && time.Since(begun) >= limit {
		<-within.Done() // within ends at this moment
	}
	return within.Err() != nil
}

// limited returns ctx with the limit of WithMaxWait. The limit counts from the call on and covers the local queue and
// the wait at Redis together.
func (m *RWMutex) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := m.settings.MaxWait
	if limit == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, limit, &maxWaitError{limit})
}

// giveUp removes a waiter, unless it was admitted at the same moment, and reports whether it did. An admitted waiter
// has the lock even if its context has ended: a caller that gets an error would not unlock it.
func (m *RWMutex) giveUp(w *waiter) bool {
	m.mu.Lock()
	defer m.unlock()
	if w.stage == admitted {
		return false
	}
	m.local.giveUp(w)
	m.unused()
	return true
}

// notAcquired returns the error for a goroutine that goroutines of this process kept out. It names the holder as
// Inspect would, and adds what only this process knows: that the holder has lost the lock and has not unlocked it.
func (m *RWMutex) notAcquired(mode Mode, waited time.Duration, cause error) error {
	e := &AcquireError{Name: m.name, Mode: mode, Waited: waited, Err: cause}
	if s := m.in.Load(); s != nil {
		e.Holder = s.holder(max(1, m.local.readers.number()))
		e.Err = s.notUnlocked(cause)
	}
	return e
}

// asWaited makes an error from Redis, which covers a part of the wait, cover the whole wait: the time in the local
// queue counts too.
func asWaited(err error, waited time.Duration, ctx, within context.Context) error {
	ended := within.Err() != nil && ctx.Err() == nil
	switch e := err.(type) {
	case *AcquireError:
		if e.Waited = waited; ended && e.Err != nil {
			e.Err = waitingEnd(ctx, within)
		}
	case *QuorumError:
		if ended && e.Err != nil {
			e.Err = waitingEnd(ctx, within)
		}
	}
	return err
}

// waitingEnd returns why within has ended. If only the limit was reached, it does not report the end of the caller's
// context.
func waitingEnd(ctx, within context.Context) error {
	if ctx.Err() == nil {
		return context.Cause(within)
	}
	return ctxerr.Cause(ctx)
}
