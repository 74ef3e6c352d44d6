package rwlock

import (
	"context"
	"errors"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
)

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
