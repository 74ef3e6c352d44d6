package rwlock

import (
	"context"
	"errors"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
)

// errNotJoined, which no caller sees, is told to a leader that came while others read and could not join them.
var errNotJoined = errors.New("rwlock: readers not joined")

// bid is the attempt of a leader. While it lasts all others who want in wait for it, so it ends with the leader's
// context at the latest; what it was waiting for at Redis is given up in the background.
type bid struct {
	*place
	w     *waiter
	entry engine.Entry
}

// lead gets the place for the leader and for those who enter with it: beside the readers that are in, or from Redis. On
// any error but errNotJoined the leader has left the queue.
//
// What is read under mu at first may change until the leader acts on it, except that nobody else can lead and, where
// the place is empty, nobody can enter: the first of the queue is the leader itself.
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
	defer m.end() // also when a hook of the locker panics: nobody may wait for this leader for ever
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

// exchange lets the leader in under a remote hold that nobody uses, if that serves it, or gives it back. That the lease
// may end right after is no matter, since a section whose lease has ended knows it by the same clocks.
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
	// Nobody stood in it: that it was lost, or is not confirmed, concerns nobody. All who come wait for this leader, so it
	// is not kept beyond the end of its context.
	m.locker.engine.ReleaseWithin(ctx, &h.lease.inner)
	return false
}

// ask acquires the lock from Redis, for the leader of the cohort and those who enter with it. It is the only place that
// waits for other processes, and is called without mu: meanwhile others of this process queue, or give up.
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

// extend gives the readers that are in the time that a new hold would have, and reports whether it did. It is called
// without mu, since under WithoutRenewal it sends a command; beside looks again at who is in.
func (m *bid) extend(ctx context.Context, s *section) bool {
	if s.remote.once && s.remote.lease.Renew(ctx) != nil {
		return false
	}
	return s.bound == nil && s.lost() == nil || s.bound != nil && s.extend()
}

// beside lets a reader in beside those of a section, if they are still there. They may have left while it extended
// their lease, and another section have begun; then the extension was for nothing, and the reader waits for its own
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

// stepBack has one that waits wait until the readers that are in have left. A single attempt is not in the queue and
// has failed.
func (m *bid) stepBack() error {
	if m.entry == engine.Wait {
		m.mu.Lock()
		defer m.unlock()
		m.local.stepBack(m.w)
	}
	return errNotJoined
}

// end lets the next lead if this one has failed. One that was admitted has left the queue already.
func (m *bid) end() {
	m.mu.Lock()
	defer m.unlock()
	if m.w.stage == leading {
		m.local.giveUp(m.w)
		m.unused()
	}
}
