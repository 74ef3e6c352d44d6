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

// RWMutex is a distributed lock with the methods of sync.RWMutex. It excludes the goroutines of a process from each
// other, and it excludes other processes. Exclusion inside the process never depends on Redis. Goroutines are served in
// the order of their arrival, and readers between two writers enter together. The goroutines of a process share one
// hold: one of them acquires the lock from Redis, and they pass it on among themselves without a command. The process
// releases the hold when none of its goroutines wants the lock or, a little later, when another process wants it. The
// other process sends a message to this process; without the message, this process learns of it from the answer to its
// next renewal at the latest.
//
// Every writer has its own fencing token, larger than all tokens before it. Readers that hold the lock together share
// one token. If the lock is lost, its holders keep the RWMutex until they unlock it, and Unlock returns the loss. No
// other goroutine of the process enters before that. So Token and Context always describe the current holders of the
// RWMutex, and a missing Unlock keeps it locked, as with a sync.RWMutex.
//
// WithLinger keeps the lock in this process for a time after the last Unlock. WithMaxHold counts for each writer, and
// for readers from the last reader that joined. With WithoutRenewal every writer acquires the lock from Redis for
// itself, and a reader that joins other readers costs a command, because it has to extend their lease.
//
// An RWMutex is safe for concurrent use. Only Locker.RWMutex makes one: the zero value cannot be used. A goroutine may
// unlock what another goroutine has locked.
type RWMutex struct {
	place
	refused error // why the RWMutex cannot be used; only place.name is set then
}

// place has the holders and the waiters of an RWMutex in this process, and the hold on Redis that the process has for
// them. Its parts:
//
//	cohort      the holders and the local queue, in the order of arrival; it knows nothing of Redis
//	readers     the readers that hold the lock together, counted without a mutex; in the cohort
//	remoteHold  the lease of the process, with its token block and how long it still serves
//	section     what the current holders share: one token, and contexts that end with it
//	bound       WithMaxHold for a section
//	bid         the attempt of the leader: under the existing remote hold, or with a new one from Redis
//	conversion  a holder that turns from reading to writing, or back
//	linger      how long the remote hold is kept while it has no holder
//	mutexes     the registry of a locker: one RWMutex for a name
//
// Lock tries three ways, in the order of their cost. First, the goroutine joins readers or enters under an idle lease,
// without a command; to join readers also needs no mutex. Second, it queues and gets the place from a holder that
// leaves. Third, it leads and acquires the lock from Redis. Unlock has four outcomes: other readers stay, the place
// passes to the next waiter, the process keeps the lease, or it releases the lease.
//
// in and remote are read without mu by goroutines that join readers, and by Token and Context. Such a read may return a
// section that has just ended. So the goroutine also checks that the lease is trusted, or the reader count, which shows
// the end too.
//
// Mutexes are taken in the order mu, section.mu, mutexes.mu. The engine's list of locks that are being released comes
// last. None of them is held across a call that sends a command or ends contexts. So none is held when a hook, the
// callback at the end of a lease or a caller's parent context calls this package.
type place struct {
	locker   *Locker // nil where the RWMutex cannot be used
	name     string
	settings settings.Lock
	terms    *engine.Terms
	released error // the cause for the contexts of a section that is not lost

	in     atomic.Pointer[section]    // the section of the current holders, or nil; stored under mu
	remote atomic.Pointer[remoteHold] // the hold of the process on Redis, or nil; stored under mu
	mu     sync.Mutex                 // never held across a call that sends a command or ends contexts
	local  cohort
	block  int           // number of tokens that the next request asks for
	seen   fencing.Token // the largest token of the holds before
	linger linger
}

// RWMutex returns the lock with that name as an RWMutex. Calls with the same name and equal options return the same
// RWMutex. While an RWMutex is in use in this process, held or waited for, an RWMutex with the same name and other
// options fails with an *OptionError, because the two would have to share a lease. The name and the options are checked
// at the first use. An RWMutex that is not in use costs no goroutine and no command, and need not be closed.
func (l *Locker) RWMutex(name string, opts ...LockOption) *RWMutex {
	refused := func(err error) *RWMutex { return &RWMutex{place: place{name: name}, refused: err} }
	if l.isZero() {
		return refused(errZeroLocker)
	}
	if err := checkName(name); err != nil {
		return refused(err)
	}
	s, err := l.lockSettings(l.defaults, opts)
	if err != nil {
		return refused(err)
	}
	return l.mutexes.get(name, s, func() *RWMutex {
		m := &RWMutex{place: place{
			locker: l, name: name, settings: s, terms: l.terms, released: &releasedError{name}, block: firstBlock,
		}}
		// WithMaxWait also covers the local queue, and WithMaxHold applies to a section: this package enforces both.
		if s != l.defaults || s.MaxWait > 0 || s.MaxHold > 0 {
			s.MaxWait, s.MaxHold = 0, 0
			m.terms = s.Terms()
		}
		return m
	})
}

var errZeroMutex = &OptionError{"RWMutex", "zero value", "must be made by Locker.RWMutex"}

// isUnusable reports whether the RWMutex has no Locker: no Locker made it, or the Locker refused its name or options.
func (m *RWMutex) isUnusable() bool { return m.locker == nil }

// unusable returns the reason.
func (m *RWMutex) unusable() error {
	if m.refused != nil {
		return m.refused
	}
	return errZeroMutex
}

// Lock acquires the lock for writing. It waits until the lock is granted, until ctx ends or WithMaxWait is reached
// (*AcquireError, or *QuorumError if Redis does not answer), or until the locker is closed (ErrClosed). If ctx belongs
// to a section under the same lock, the error matches ErrNested.
func (m *RWMutex) Lock(ctx context.Context) error { return m.acquire(ctx, Write, engine.Wait) }

// TryLock is Lock with a single attempt. If the lock is taken, the error matches ErrNotAcquired; TryLock sends no
// command if this process itself holds the lock or waits for it.
func (m *RWMutex) TryLock(ctx context.Context) error { return m.acquire(ctx, Write, engine.Try) }

// RLock acquires the lock for reading, together with other readers. It waits behind a writer that came first. See Lock.
func (m *RWMutex) RLock(ctx context.Context) error { return m.acquire(ctx, Read, engine.Wait) }

// TryRLock is RLock with a single attempt; see TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) error { return m.acquire(ctx, Read, engine.Try) }

// Unlock releases the write lock and returns what Lease.Release returns. Without a write lock the error matches
// ErrNotHeld. With a write lock that was lost before, it matches ErrLost.
func (m *RWMutex) Unlock(ctx context.Context) error { return m.unlockFor(ctx, Write) }

// RUnlock releases one read lock, as Unlock does.
func (m *RWMutex) RUnlock(ctx context.Context) error { return m.unlockFor(ctx, Read) }

func (m *RWMutex) unlockFor(ctx context.Context, mode Mode) error {
	if m.isUnusable() {
		return m.unusable()
	}
	return m.leave(ctx, mode)
}

// Token returns the fencing token of the current holders, or 0 if there are none: the writer's token, or the token that
// the current readers share. Between a loss and the Unlock it is the token of the lost lease.
func (m *RWMutex) Token() fencing.Token {
	if s := m.in.Load(); s != nil {
		return s.fence.token()
	}
	return 0
}

// Context returns parent with the fence. It is cancelled when the lock that this RWMutex holds is released or lost; for
// a reader, when the last of the readers has unlocked. It continues through Upgrade and Downgrade, and then shows the
// new fence. Without a hold it is already cancelled, with ErrNotHeld as the cause.
func (m *RWMutex) Context(parent context.Context) context.Context {
	if s := m.in.Load(); s != nil {
		return s.context(parent)
	}
	return endedContext(parent, fmt.Errorf("%w: %q", ErrNotHeld, m.name))
}
