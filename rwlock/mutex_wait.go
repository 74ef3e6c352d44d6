package rwlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
)

func (m *RWMutex) acquire(ctx context.Context, mode Mode, entry engine.Entry) error {
	if m.refused != nil {
		return m.refused
	}
	if ctx.Err() != nil {
		return m.notAcquired(mode, 0, endOf(ctx))
	}
	if entry == engine.Try {
		return m.try(ctx, mode)
	}
	if err := m.locker.nested(ctx, m.name, "", m.standing()); err != nil {
		return err
	}
	if mode == Read && m.join() {
		return nil
	}
	return m.wait(ctx, mode)
}

// join enters beside the readers that are in, if none but readers are concerned and their lease is trusted.
func (m *RWMutex) join() bool {
	hold := m.hold.Load()
	if hold == nil || !hold.renewed() || hold.err() != nil { // not under mu: a loss that is noticed here runs hooks
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	joins := m.local.mayJoin() && m.hold.Load() == hold
	if joins {
		m.local.readers++
	}
	return joins
}

// try is a single attempt: at Redis, if nobody in this process is in the way.
func (m *RWMutex) try(ctx context.Context, mode Mode) error {
	if mode == Read && m.join() {
		return nil
	}
	w, leads := newWaiter(mode), false
	err := m.begin(func() { leads = m.local.tryLead(w) })
	if err != nil {
		return err
	}
	if !leads {
		return m.notAcquired(mode, 0, nil)
	}
	err = m.lead(ctx, w, engine.Try)
	if err == errNotJoined {
		m.giveUp(w)
		return m.notAcquired(mode, 0, nil)
	}
	return err
}

// begin lets one more goroutine use the RWMutex: it makes sure that the process uses no other one of that name.
func (m *RWMutex) begin(enter func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.local.idle() {
		if err := m.locker.mutexes.claim(m); err != nil {
			return err
		}
	}
	enter()
	return nil
}

// end follows, under mu, whatever may have left nobody who uses the RWMutex.
func (m *RWMutex) end() {
	if m.local.idle() {
		m.locker.mutexes.disclaim(m)
	}
}

// wait queues in this process and returns when the lock is held or cannot be got.
func (m *RWMutex) wait(ctx context.Context, mode Mode) error {
	begun, within := time.Now(), ctx
	if limit := m.settings.MaxWait; limit > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, limit, &maxWaitError{limit})
		defer cancel()
	}
	w := newWaiter(mode)
	if err := m.begin(func() { m.local.enqueue(w) }); err != nil {
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
		if err := m.lead(within, w, engine.Wait); err != errNotJoined {
			return m.asWaited(err, time.Since(begun), ctx, within)
		}
	}
}

// giveUp takes a waiter out, unless it was admitted in the same moment. It reports whether it did.
func (m *RWMutex) giveUp(w *waiter) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.stage == admitted {
		return false
	}
	m.local.giveUp(w)
	m.end()
	return true
}

// errNotJoined is told to a leader that came while others read and could not join them.
var errNotJoined = errors.New("rwlock: readers not joined")

// lead gets the place for the leader and for those who enter with it: beside the readers that are in, or from Redis. On
// any error but errNotJoined the leader has left the queue.
func (m *RWMutex) lead(ctx context.Context, w *waiter, entry engine.Entry) error {
	m.mu.Lock()
	reading, returning := m.local.readers > 0, m.local.returning
	standing := m.hold.Load()
	m.mu.Unlock()
	if reading || returning {
		if reading && standing.extend(ctx) && m.enter(w, standing) {
			return nil
		}
		return m.stepBack(w, entry)
	}
	defer m.leaveLeading(w) // also when a hook of the locker panics: nobody may wait for this leader for ever
	hold, err := m.ask(ctx, w.mode, entry)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hold.Store(hold)
	m.local.admit(w)
	return nil
}

// enter lets a reader in beside those that stand in the hold, if they still do.
func (m *RWMutex) enter(w *waiter, hold *remoteHold) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.local.readers == 0 || m.hold.Load() != hold {
		return false
	}
	m.local.admit(w)
	return true
}

func (m *RWMutex) stepBack(w *waiter, entry engine.Entry) error {
	if entry == engine.Wait {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.local.stepBack(w)
	}
	return errNotJoined
}

// leaveLeading lets the next lead if this one has failed.
func (m *RWMutex) leaveLeading(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.stage == leading {
		m.local.giveUp(w)
		m.end()
	}
}

// notAcquired is the error of one that was kept out by others of this process.
func (m *RWMutex) notAcquired(mode Mode, waited time.Duration, cause error) error {
	e := &AcquireError{Name: m.name, Mode: mode, Waited: waited, Err: cause}
	if hold := m.hold.Load(); hold != nil {
		e.Holder = hold.holder()
		if lost := hold.lost(); lost != nil && cause != nil {
			e.Err = fmt.Errorf("%w; it was lost and is not unlocked yet: %v", cause, lost)
		}
	}
	return e
}

// asWaited tells of the whole waiting what Redis told of a part of it.
func (m *RWMutex) asWaited(err error, waited time.Duration, ctx, within context.Context) error {
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
	return endOf(ctx)
}

// endOf returns what matches ctx.Err() and, where somebody gave one, the cause.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
