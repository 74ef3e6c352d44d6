package rwlock

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/localqueue"
)

// acquire is Lock, TryLock, RLock and TryRLock. It first refuses a call that cannot succeed, without a request: an
// unusable RWMutex, a context that has ended, a section that would wait for itself. Then it tries to enter without a
// command, and only then it queues.
func (m *RWMutex) acquire(ctx context.Context, mode Mode, entry engine.Entry) error {
	if m.locker == nil {
		return m.unusable()
	}
	if ctx.Err() != nil {
		return m.notAcquired(mode, 0, errs.Cause(ctx))
	}
	if entry == engine.Try {
		return m.try(ctx, mode)
	}
	if err := nested(ctx, m.locker, m.name, ""); err != nil {
		return err
	}
	if m.enter(mode) {
		return nil
	}
	return m.wait(ctx, mode)
}

// enter admits a goroutine that need not wait: under a remote hold without a holder, or together with readers. It
// checks trust once, at the entrance: a lease that ends right after that ends the contexts of the section, before a
// goroutine elsewhere is admitted. If the remote hold does not serve the mode, for example a read lease and a writer,
// the goroutine queues and leads, and the leader releases the hold first.
func (m *RWMutex) enter(mode Mode) bool {
	h := m.remote.Load()
	if h == nil {
		return false
	}
	now := m.locker.engine.Now()
	if !h.lease.inner.Trusted(now) {
		return false
	}
	if mode == Read && m.queue.TryJoin() {
		return true
	}
	m.mu.Lock()
	defer m.unlock()
	switch {
	case m.remote.Load() != h:
		return false
	case mode == Read && m.queue.IsOpen() && m.current.Load().extend(now):
	case m.queue.IsIdle() && h.serves(mode, now):
		m.current.Store(h.newSection(m, mode))
	default:
		return false
	}
	m.queue.Enter(mode)
	return true
}

// unlock unlocks mu. Before that it lets those waiters join the current readers that have no writer ahead of them: one
// has given up, or has become a reader. And it decides whether readers may join without mu from then on: not while a
// waiter of this process or of another one is ahead of them, and not if they have to extend the time of the current
// readers, which otherwise would end theirs too.
func (m *RWMutex) unlock() {
	if m.queue.Readers() > 0 {
		if m.queue.MayJoin() && m.current.Load().extend(m.locker.engine.Now()) {
			m.queue.JoinReaders()
		}
		m.queue.AllowJoin(!m.remote.Load().contended && m.settings.MaxHold == 0)
	}
	m.mu.Unlock()
}

// try is a single attempt: it asks Redis, once, if no goroutine of this process is in the way. Goroutines that come
// during the attempt wait for it, as for any leader.
func (m *RWMutex) try(ctx context.Context, mode Mode) error {
	if m.enter(mode) {
		return nil
	}
	begun, leads := time.Now(), false
	w := localqueue.NewWaiter(mode, begun)
	err := m.use(func() { leads = m.queue.TryLead(w) })
	if err != nil {
		return err
	}
	if !leads {
		return m.notAcquired(mode, 0, nil)
	}
	err = m.queued(w, func() error { return m.lead(ctx, w, engine.Try) })
	return asWaited(err, time.Since(begun), ctx, ctx)
}

// wait queues in this process and returns when the lock is held or cannot be acquired.
func (m *RWMutex) wait(ctx context.Context, mode Mode) error {
	begun := time.Now()
	within, cancel := limited(ctx, m.settings.MaxWait, begun) // of the local queue and of Redis together
	defer cancel()
	over := within.Done() // the caller's code, which may panic, does not run after the waiter has been admitted
	w := localqueue.NewWaiter(mode, begun)
	if err := m.use(func() { m.queue.Enqueue(w) }); err != nil {
		return err
	}
	return m.queued(w, func() error {
		select {
		case <-w.Turn():
		case <-over:
			if m.giveUp(w) {
				return m.notAcquired(mode, time.Since(begun), waitingEnd(ctx, within))
			}
		case <-m.locker.mutexes.closed:
			if m.giveUp(w) {
				return fmt.Errorf("%w: lock %q", ErrClosed, m.name)
			}
		}
		if w.Admitted() {
			return nil
		}
		if m.isOver(within, begun) && m.giveUp(w) { // no request was sent to Redis, so Redis is not what failed
			return m.notAcquired(mode, time.Since(begun), waitingEnd(ctx, within))
		}
		return asWaited(m.lead(within, w, engine.Wait), time.Since(begun), ctx, within)
	})
}

// use lets one more goroutine use the RWMutex: it claims the name for the first one, and calls enter under the same mu,
// so that the RWMutex is not unused in between. An RWMutex with that name and other options, which only lingers, gives
// way; one that is in use is the error.
func (m *RWMutex) use(enter func()) error {
	for {
		var other *RWMutex
		var err error
		m.mu.Lock()
		if m.queue.IsIdle() {
			other, err = m.locker.mutexes.claim(m)
		}
		if err == nil {
			enter()
		}
		m.unlock()
		if err == nil || !other.releaseIdle() {
			return err
		}
	}
}

// queued calls f, which waits or leads. If f panics, as a method of the caller's context may, the waiter leaves: no
// goroutine may wait for it for ever.
func (m *RWMutex) queued(w *localqueue.Waiter, f func() error) error {
	returned := false
	defer func() {
		if !returned {
			m.giveUp(w)
		}
	}()
	err := f()
	returned = true
	return err
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
// has the lock even if its context has ended: a caller that gets an error would not unlock it. A hold that lingered
// when the waiter came lingers on, unless it was to end meanwhile: then the waiter was in the way, and nothing else
// ends it.
func (m *RWMutex) giveUp(w *localqueue.Waiter) bool {
	m.mu.Lock()
	if !m.queue.GiveUp(w) {
		m.unlock()
		return false
	}
	h := m.idleHold()
	if h != nil && m.linger.armed && !h.contended {
		h = nil
	}
	release := m.detachIdle(h)
	m.disclaimIfUnused()
	m.unlock()
	release()
	return true
}

// notAcquired returns the error for a goroutine that goroutines of this process kept out. It names the holder as
// Inspect would, and adds what only this process knows: that the holder has lost the lock and has not unlocked it.
func (m *RWMutex) notAcquired(mode Mode, waited time.Duration, cause error) error {
	e := &AcquireError{Name: m.name, Mode: mode, Waited: waited, Err: cause}
	if s := m.current.Load(); s != nil {
		e.Holder, e.own = s.holder(max(1, m.queue.Readers())), waited > 0
		e.Err = s.notUnlocked(cause)
	}
	return e
}

// lead makes the leader a holder, with the readers that enter with it, under the remote hold of the process or under a
// new one. All other goroutines that want the lock wait for the leader, so lead ends with the leader's context at the
// latest, and what it has asked of Redis is then given up in the background. After an error the leader has left the
// queue.
//
// There is no holder, no other goroutine can lead, and none can enter, because a queue with a leader is not idle.
func (m *RWMutex) lead(ctx context.Context, w *localqueue.Waiter, entry engine.Entry) error {
	defer m.giveUp(w) // after an error
	h := m.remote.Load()
	if h != nil && m.reuse(ctx, h, w) {
		return nil
	}
	// A hold that was lost before the request returned serves no goroutine: those that came meanwhile would get a token
	// that is behind those of other clients.
	for {
		var err error
		if h, err = m.request(ctx, w.Mode(), entry); err != nil {
			return err
		}
		m.mu.Lock()
		if h.lease.inner.Trusted(m.locker.engine.Now()) {
			break
		}
		m.unlock()
		h.lease.inner.ReleaseWithin(ctx) // a renewal that is under way may still keep it
	}
	m.remote.Store(h)
	m.current.Store(h.newSection(m, w.Mode()))
	m.queue.AdmitLeader()
	m.unlock()
	m.watchContended(h)
	h.lease.inner.OnEnd(func(err error) { m.leaseEnded(h, h.lease.convertError(err)) })
	return nil
}

// reuse admits the leader under a remote hold without a holder if the hold serves its mode, and releases the hold if
// not. The lease may end right after that. This is safe: a section checks the end of its lease by the same clocks.
func (m *RWMutex) reuse(ctx context.Context, h *remoteHold, w *localqueue.Waiter) bool {
	now := m.locker.engine.Now()
	m.mu.Lock()
	if m.remote.Load() == h && h.serves(w.Mode(), now) {
		m.current.Store(h.newSection(m, w.Mode()))
		m.queue.AdmitLeader()
		m.unlock()
		return true
	}
	m.detach(h)
	m.unlock()
	// The hold had no holder, so a loss or an unconfirmed release concerns no caller. All goroutines that come wait for
	// this leader, so the release does not keep it beyond the end of its context.
	h.lease.inner.ReleaseWithin(ctx)
	return false
}

// request acquires a remote hold for the leader and the readers that enter with it. It is the only step that waits for
// other processes. It is called without mu: other goroutines of this process queue or give up during the call.
func (m *RWMutex) request(ctx context.Context, mode Mode, entry engine.Entry) (*remoteHold, error) {
	m.mu.Lock()
	r := engine.Request{
		Name: m.name, Mode: mode, Entry: entry, Terms: m.terms, Block: m.block, Seen: m.seen, TokenInUse: m.token,
	}
	m.unlock()
	m.requesting.Store(true)
	defer m.requesting.Store(false)
	lease, err := m.locker.request(ctx, r, time.Time{})
	if err != nil {
		return nil, err
	}
	h := &remoteHold{lease: lease, since: time.Now()}
	h.setGrant()
	return h, nil
}

// leave is Unlock and RUnlock. It leaves the queue, has the section end, and hands the remote hold on or releases it.
// Each of the three steps takes mu for itself, as the queue is paused from the first to the last one: no goroutine
// enters before the contexts of the section have ended, or under a lease that is about to be released, and the next
// request does not wait behind the hold of its own process. With WithBackgroundRelease that request waits for the
// answer to the release. A loss that is noticed runs hooks, and contexts that end run callbacks: not under mu.
func (m *RWMutex) leave(ctx context.Context, mode Mode) error {
	if m.locker == nil {
		return m.unusable()
	}
	now := m.locker.engine.Now()
	s := m.current.Load()
	if mode == Read && s != nil && s.limit == nil && s.remote.lease.inner.Trusted(now) && m.queue.TryLeave() {
		return nil // other readers stay; without trust the reader learns of the loss below
	}

	// While the caller is a holder the section stays the same, so the loss is looked for before it leaves.
	var lost error
	if s != nil && (s.limit != nil || !s.remote.lease.inner.Trusted(now)) {
		lost = s.lost()
	}
	m.mu.Lock()
	if current := m.current.Load(); current != s { // a section that has begun since is trusted
		s, lost = current, nil
	}
	held, last := m.queue.Leave(mode)
	m.unlock()
	if !held {
		return fmt.Errorf("%w: %q for %s", ErrNotHeld, m.name, mode)
	}
	if !last {
		return lost
	}

	ends, over := s.finish(cmp.Or(lost, m.released))
	if lost == nil && over != m.released {
		lost = s.asLost(over) // by a limit that was reached a moment ago
	}
	if len(ends) > 0 {
		m.mu.Lock()
		m.current.Store(nil)
		m.unlock()
		ends.Cancel(over)
		now = m.locker.engine.Now()
	}

	if m.handOn(s.remote, now, lost != nil) {
		return nil
	}
	defer func() { // also if the release is not confirmed: the next leader waits for it at Redis
		m.mu.Lock()
		defer m.unlock()
		m.queue.Resume()
		m.disclaimIfUnused()
	}()
	if lost != nil {
		_ = s.reached() // the goroutine that ended the section at its limit may not have ended the lease so far
	}
	err := s.remote.lease.Release(ctx) // only the last holder gets the answer: the others have unlocked already
	return cmp.Or(lost, s.asLost(err), err)
}

// handOn admits the next waiter under the remote hold or, without one, keeps the hold for a later goroutine. It sends
// no command, so the lock passes between goroutines of a process at memory speed. If it can do neither, it detaches the
// hold and reports false. No section follows a lost one.
func (m *RWMutex) handOn(h *remoteHold, now clock.Instant, lost bool) bool {
	m.mu.Lock()
	defer m.unlock()
	mode, waits := m.queue.Next()
	switch {
	case !lost && !waits && m.startLinger(h, now):
	case !lost && waits && h.serves(mode, now):
		m.current.Store(h.newSection(m, mode))
		m.queue.AdmitFirst()
	default:
		m.detach(h)
		return false
	}
	return true
}

// startLinger leaves the remote hold with this process for a later goroutine, under mu. It reports whether it did: not
// while another process waits, and not if the hold cannot serve another reader.
func (m *RWMutex) startLinger(h *remoteHold, now clock.Instant) bool {
	d := m.settings.Linger
	if d <= 0 || h.contended || !h.serves(Read, now) {
		return false
	}
	m.current.Store(nil)
	m.queue.Resume()
	l := &m.linger
	l.until = now.Mono + d
	switch {
	case l.timer == nil:
		l.timer = time.AfterFunc(d, m.onLingerEnd)
	case !l.armed:
		l.timer.Reset(d)
	}
	l.armed = true
	return true
}
