package rwlock

import (
	"context"
	"errors"
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

// wait queues in this process and returns when the lock is held or cannot be acquired. It may lead several times: if it
// could not join the current readers, it steps back into its place and is woken when they have left.
func (m *RWMutex) wait(ctx context.Context, mode Mode) error {
	begun := time.Now()
	within, cancel := limited(ctx, m.settings.MaxWait) // of the local queue and of Redis together
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

// errNotJoined is returned to a leader that came while there were readers and could not join them. No caller sees it.
var errNotJoined = errors.New("rwlock: readers not joined")

// bid is the attempt of a leader. All other goroutines that want the lock wait for it, so it ends with the leader's
// context at the latest. What it was waiting for at Redis is then given up in the background.
type bid struct {
	*place
	w     *waiter
	entry engine.Entry
}

// lead gets the place for the leader and for the readers that enter with it: it joins the current readers, or asks
// Redis. On any error but errNotJoined the leader has left the queue.
//
// The state that lead reads under mu first may change before the leader acts on it, with two exceptions. No other
// goroutine can lead. And while there is no holder, no goroutine can enter: cohort.unclaimed is false while there is a
// leader.
func (m *bid) lead(ctx context.Context) error {
	w := m.w
	m.mu.Lock()
	s, h := m.in.Load(), m.remote.Load()
	joins, alone := m.local.besideReaders(), m.local.empty() && !m.local.returning
	m.unlock()
	if !alone {
		if joins && m.extend(ctx, s) && m.beside(s) {
			return nil
		}
		return m.stepBack()
	}
	defer m.end() // also if a hook of the locker panics: no goroutine may wait for this leader for ever
	if h != nil && m.exchange(ctx, h) {
		return nil
	}
	hold, err := m.ask(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.remote.Store(hold)
	m.in.Store(hold.begin(m.place, w.mode))
	m.local.admitLeader(w)
	m.unlock()
	m.watch(hold)
	return nil
}

// exchange admits the leader under a remote hold without a holder if the hold serves its mode, and releases the hold if
// not. The lease may end right after that. This is safe: a section checks the end of its lease by the same clocks.
func (m *bid) exchange(ctx context.Context, h *remoteHold) bool {
	w := m.w
	now := m.locker.engine.Now()
	m.mu.Lock()
	if m.remote.Load() == h && h.serves(w.mode, now) {
		m.in.Store(h.begin(m.place, w.mode))
		m.local.admitLeader(w)
		m.unlock()
		return true
	}
	m.forget(h)
	m.unlock()
	// The hold had no holder, so a loss or an unconfirmed release concerns no caller. All goroutines that come wait for
	// this leader, so the release does not keep it beyond the end of its context.
	h.lease.inner.ReleaseWithin(ctx)
	return false
}

// ask acquires the lock from Redis for the leader and the readers that enter with it. It is the only step of a bid that
// waits for other processes. It is called without mu: other goroutines of this process queue or give up during the
// call.
func (m *bid) ask(ctx context.Context) (*remoteHold, error) {
	m.mu.Lock()
	block, seen := m.block, m.seen
	m.unlock()
	r := engine.Request{
		Name: m.name, Mode: m.w.mode, Entry: m.entry, Terms: m.terms, Block: block, Seen: seen,
	}
	lease, err := m.locker.request(ctx, r)
	if err != nil {
		return nil, err
	}
	return &remoteHold{lease: lease, since: time.Now(), once: !m.settings.Renew, grant: granted(lease)}, nil
}

// extend gives the current readers the time that a new hold would have, and reports whether it did. It is called
// without mu, because under WithoutRenewal it sends a command. beside then checks again which section is current.
func (m *bid) extend(ctx context.Context, s *section) bool {
	if s.remote.once && s.remote.lease.Renew(ctx) != nil {
		return false
	}
	return s.bound == nil && s.lost() == nil || s.bound != nil && s.extend()
}

// beside admits a reader to a section if its readers are still there. They may have left while the new reader extended
// their lease, and another section may have begun. Then the extension was useless, and the reader waits for its own
// turn.
func (m *bid) beside(s *section) bool {
	now := m.locker.engine.Now()
	m.mu.Lock()
	defer m.unlock()
	if !m.local.besideReaders() || m.in.Load() != s || !s.remote.admitsMore() || !s.remote.trusted(now) {
		return false
	}
	m.local.admitLeader(m.w)
	return true
}

// stepBack makes a leader from the queue wait until the current readers have left. A single attempt is not in the queue
// and has failed.
func (m *bid) stepBack() error {
	if m.entry == engine.Wait {
		m.mu.Lock()
		defer m.unlock()
		m.local.stepBack(m.w)
	}
	return errNotJoined
}

// end lets the next waiter lead if this leader has failed. A leader that was admitted has left the queue already.
func (m *bid) end() {
	m.mu.Lock()
	defer m.unlock()
	if m.w.stage == leading {
		m.local.giveUp(m.w)
		m.unused()
	}
}
