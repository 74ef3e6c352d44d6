package rwlock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/settings"
)

// RWMutex is a lock in the shape of sync.RWMutex: for the goroutines of a process among themselves, and against other
// processes. Inside the process exclusion never depends on Redis. Goroutines are served in the order of their arrival,
// readers between two writers together. Each writer takes the lock from Redis for itself; readers share one remote
// hold, so a reader that joins others costs no command (under WithoutRenewal: one, since it has to extend the hold).
//
// If the remote hold is lost, its holders still stand in the RWMutex until they unlock, and Unlock tells them of the
// loss; no other goroutine of the process gets in before. So Token and Context always speak of the lease of whoever
// holds the RWMutex, and a missing Unlock keeps it locked, as with a sync.RWMutex.
//
// The readers' hold lasts as long as any of them: while readers of one process overlap without end and none of its
// goroutines wants to write, writers of other processes wait. WithMaxHold counts from the last reader that joined.
//
// It is safe for concurrent use. Whoever unlocks need not be who locked.
type RWMutex struct {
	locker    *Locker
	name      string
	refused   error // why it cannot be used; the other fields are not set then
	settings  settings.Lock
	terms     *engine.Terms // of a writer's lease
	readTerms *engine.Terms // of the readers' lease

	hold  atomic.Pointer[remoteHold] // of those who are in; stored under mu
	mu    sync.Mutex                 // never held over a call of the engine
	local cohort
}

// RWMutex returns the lock of that name as an RWMutex, the same one for the same name and equal options. While one is
// in use in this process, held or waited for, one of that name with other options fails with an *OptionError, since
// they would have to share a lease. The name and the options are checked at the first use. An RWMutex that is not in
// use costs no goroutine and no command, and need not be closed.
func (l *Locker) RWMutex(name string, opts ...LockOption) *RWMutex {
	if err := checkName(name); err != nil {
		return &RWMutex{name: name, refused: err}
	}
	s, err := l.lockSettings(opts)
	if err != nil {
		return &RWMutex{name: name, refused: err}
	}
	return l.mutexes.get(name, s, func() *RWMutex {
		m := &RWMutex{locker: l, name: name, settings: s, terms: l.terms}
		// The limit of the waiting spans the local queue, and that of the readers' hold moves: both are kept here.
		if s != l.defaults || s.MaxWait > 0 {
			s.MaxWait = 0
			m.terms = s.Terms()
		}
		if m.readTerms = m.terms; s.MaxHold > 0 {
			s.MaxHold = 0
			m.readTerms = s.Terms()
		}
		return m
	})
}

// Lock takes the lock for writing: it waits until it is granted, until ctx ends or WithMaxWait is reached
// (*AcquireError, or *QuorumError if Redis does not answer) or the locker is closed. A ctx that belongs to a section
// under the same lock is ErrNested.
func (m *RWMutex) Lock(ctx context.Context) error { return m.acquire(ctx, Write, engine.Wait) }

// TryLock is Lock with a single attempt: the error matches ErrNotAcquired, without a command where this process holds
// the lock or waits for it.
func (m *RWMutex) TryLock(ctx context.Context) error { return m.acquire(ctx, Write, engine.Try) }

// RLock takes the lock for reading, beside other readers; it waits behind a writer that came first. See Lock.
func (m *RWMutex) RLock(ctx context.Context) error { return m.acquire(ctx, Read, engine.Wait) }

// TryRLock is RLock with a single attempt; see TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) error { return m.acquire(ctx, Read, engine.Try) }

// Unlock gives back the write lock, and returns what Lease.Release does. Without one the error matches ErrNotHeld; with
// one that was lost before, ErrLost.
func (m *RWMutex) Unlock(ctx context.Context) error { return m.giveBack(ctx, Write) }

// RUnlock gives back one read lock, as Unlock does.
func (m *RWMutex) RUnlock(ctx context.Context) error { return m.giveBack(ctx, Read) }

func (m *RWMutex) giveBack(ctx context.Context, mode Mode) error {
	m.mu.Lock()
	hold := m.hold.Load()
	held, last := m.local.depart(mode)
	if last {
		m.hold.Store(nil)
	}
	m.mu.Unlock()
	switch {
	case !held:
		return fmt.Errorf("%w: %q for %s", ErrNotHeld, m.name, mode)
	case !last:
		return hold.lost()
	}
	defer m.vacate()
	return hold.release(ctx)
}

// vacate lets the next in.
func (m *RWMutex) vacate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.local.vacate()
	m.end()
}

// standing is the lease of those who are in, or nil.
func (m *RWMutex) standing() *Lease {
	if hold := m.hold.Load(); hold != nil {
		return hold.lease
	}
	return nil
}

// Token returns the fencing token of those who hold this RWMutex, or 0: the writer's, or the one that all readers
// share. It is that of the lost lease between a loss and the Unlock.
func (m *RWMutex) Token() fencing.Token {
	if lease := m.standing(); lease != nil {
		return lease.Token()
	}
	return 0
}

// Context returns parent with the fence, cancelled when what this RWMutex holds is given back or lost: for a reader,
// when the last of the readers has unlocked. Without a hold it is cancelled already, with ErrNotHeld as the cause.
func (m *RWMutex) Context(parent context.Context) context.Context {
	if hold := m.hold.Load(); hold != nil {
		return hold.context(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	cancel(fmt.Errorf("%w: %q", ErrNotHeld, m.name))
	return ctx
}
