package rwlock

import (
	"context"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/joined"
)

// acquire is every way in. What is refused is refused before anybody is asked: arguments, a context that is over, a
// section that would wait for itself. Then comes the way without a command, and only then the queue.
func (m *RWMutex) acquire(ctx context.Context, mode Mode, entry engine.Entry) error {
	if m.isUnusable() {
		return m.unusable()
	}
	if ctx.Err() != nil {
		return m.notAcquired(mode, 0, joined.EndOf(ctx))
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

// enter lets one in that need not wait: under a remote hold that nobody uses, or beside readers. Trust is asked for
// once, at the entrance: a lease that ends right after that ends the contexts of the section, before anybody elsewhere
// is let in.
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

// unlock gives mu back, and lets readers join those that are in from now on, or keeps them out: behind somebody of this
// process or of another one who waits, and where they have to extend the lease.
func (m *place) unlock() {
	if m.local.readers.number() > 0 {
		h := m.remote.Load()
		m.local.readers.open(m.local.unclaimed() && h.admitsMore() && !m.extends(h))
	}
	m.mu.Unlock()
}

// extends reports whether a reader that joins others has to extend what they have, or it would be ended by the one that
// came first.
func (m *place) extends(h *remoteHold) bool { return h.once || m.settings.MaxHold > 0 }

// begin lets one in under a remote hold that nobody uses, under mu, if that serves it. One that it does not serve, such
// as a writer under a read lease, queues and leads: the leader gives the hold back first.
func (m *place) begin(h *remoteHold, mode Mode, now clock.Instant) bool {
	serves := h.serves(mode, now)
	if serves {
		m.in.Store(h.begin(m, mode))
		m.local.enter(mode)
	}
	return serves
}

// try is a single attempt: at Redis, if nobody in this process is in the way. Others who come meanwhile wait for it, as
// for any leader; it asks once.
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

// use lets one more goroutine use the RWMutex, and is how the process knows which one of a name is in use: it makes
// sure that the process uses no other one of that name. One that only lingers gives way.
func (m *place) use(enter func()) error {
	for {
		other, err := m.tryUse(enter)
		if err == nil || !other.stopLingering() {
			return err
		}
	}
}

// tryUse claims the name with the first goroutine that uses the RWMutex, and lets that one enter under the same mu, so
// that it is not unused in between. other is the one that is in use instead.
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

// unused follows, under mu, whatever may have left nobody who uses the RWMutex. After it one of the same name with
// other options may be used: nobody is in this one, and the process has nothing on Redis by it.
func (m *place) unused() {
	if m.local.idle() && m.remote.Load() == nil {
		m.locker.mutexes.disclaim(m)
	}
}

// wait queues in this process and returns when the lock is held or cannot be got. It may lead several times: where
// readers were in that it could not join, it steps back into its place and is woken when they have left.
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
		if m.isOver(within, begun) && m.giveUp(w) { // nobody has asked Redis, so it is not what failed
			return m.notAcquired(mode, time.Since(begun), waitingEnd(ctx, within))
		}
		if err := b.lead(within); err != errNotJoined {
			return asWaited(err, time.Since(begun), ctx, within)
		}
	}
}

// isOver reports whether within, which began to count at that time, has come to its end. Those who began together reach
// their limits together, and who gives up may hand its place on before the timer of the next has fired.
func (m *RWMutex) isOver(within context.Context, begun time.Time) bool {
	if limit := m.settings.MaxWait; limit > 0 && time.Since(begun) >= limit {
		<-within.Done() // now
	}
	return within.Err() != nil
}

// limited returns ctx with the limit of the waiting, which counts from the call on: in the queue of the process and at
// Redis together.
func (m *RWMutex) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := m.settings.MaxWait
	if limit == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, limit, &maxWaitError{limit})
}

// giveUp takes a waiter out, unless it was admitted in the same moment. It reports whether it did. One that was
// admitted has the lock, whatever its context says: the caller would not unlock what it was told it did not get.
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

// notAcquired is the error of one that was kept out by others of this process. It names them as Inspect would, with
// what only this process knows: that the holder has lost the lock, and has not unlocked it yet.
func (m *RWMutex) notAcquired(mode Mode, waited time.Duration, cause error) error {
	e := &AcquireError{Name: m.name, Mode: mode, Waited: waited, Err: cause}
	if s := m.in.Load(); s != nil {
		e.Holder = s.holder(max(1, m.local.readers.number()))
		e.Err = s.notUnlocked(cause)
	}
	return e
}

// asWaited tells of the whole waiting what Redis told of a part of it: the time in the queue of the process counts too.
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

// waitingEnd returns why within has ended: not as the end of the caller's context where only the limit was reached.
func waitingEnd(ctx, within context.Context) error {
	if ctx.Err() == nil {
		return context.Cause(within)
	}
	return joined.EndOf(ctx)
}
