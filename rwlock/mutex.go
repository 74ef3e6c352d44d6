package rwlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/localqueue"
	"github.com/seed74116694/fencelock/internal/settings"
)

// The process side of an RWMutex has these parts:
//
//	localqueue.Queue  the holders and the waiters of this process, in the order of arrival; it knows nothing of Redis
//	remoteHold        the lease of the process, with its token block and how many more sections it serves
//	section           what the current holders share: one token, and contexts that end with it
//	conversion        a holder that turns from reading to writing, or back
//	mutexes           the registry of a locker: one RWMutex for a name
//
// Lock tries three ways, in the order of their cost. First, the goroutine joins readers or enters under an idle lease,
// without a command; to join readers also needs no mutex. Second, it queues and is admitted by a holder that leaves.
// Third, it leads and acquires the lock from Redis. Unlock has four outcomes: other readers stay, the next waiter is
// admitted, the process keeps the lease, or it releases the lease.

// RWMutex is a distributed lock with the methods of sync.RWMutex by name, but for RLocker; each takes a context and
// returns an error. It excludes the goroutines of a process from each other, without Redis, and it excludes other
// processes. Goroutines are served in the order of their arrival, and readers between two writers enter together. The
// goroutines of a process share one hold: one of them acquires the lock from Redis, and they pass it on among
// themselves without a command. The process releases the hold when none of its goroutines wants the lock or, a little
// later, when another process wants it, which it learns by a message, or from the answer to its next renewal.
//
// Every writer has its own fencing token, larger than all tokens before it. Readers that hold the lock together share
// one token. If the lock is lost, its holders keep the RWMutex until they unlock it, and Unlock returns the loss. No
// other goroutine of the process enters before that. So Token and Context always describe the current holders of the
// RWMutex, and a missing Unlock keeps it locked, as with a sync.RWMutex.
//
// WithLinger keeps the lock in this process for a time after the last Unlock. WithMaxHold counts for each writer, and
// for readers from the last reader that joined.
//
// An RWMutex is safe for concurrent use. Only Locker.RWMutex makes one: the zero value panics. A goroutine may unlock
// what another goroutine has locked.
type RWMutex struct {
	locker   *Locker // nil if the RWMutex cannot be used; then only refused and name are set
	refused  error   // why it cannot be used; nil for the zero value
	name     string
	settings settings.Lock
	terms    *engine.Terms
	released error                // the cause for the contexts of a section that is not lost
	token    func() fencing.Token // is Token, bound once

	// Goroutines that join readers, and Token and Context, read current and remote without mu. Such a read may return a
	// section that has just ended. So the goroutine also checks that the lease is trusted, or the number of readers,
	// which shows the end too.
	current atomic.Pointer[section]    // the section of the current holders, or nil; stored under mu
	remote  atomic.Pointer[remoteHold] // the hold of the process on Redis, or nil; stored under mu

	// Mutexes are taken in the order mu, section.mu, mutexes.mu. The engine's list of locks that are being released comes
	// last. None of them is held across a call that sends a command or ends contexts. So none is held when a hook, the
	// callback at the end of a lease or a caller's parent context calls this package.
	mu     sync.Mutex
	queue  localqueue.Queue // the holders and the waiters of this process
	block  int              // the number of tokens that the next request asks for
	seen   fencing.Token    // the largest token of earlier holds
	linger lingerTimer

	requesting atomic.Bool // the leader acquires the lock from Redis; read by Leases only
}

// unusable returns why the Locker refused the RWMutex, which then has none, and panics for the zero value.
func (m *RWMutex) unusable() error {
	if m.refused == nil {
		panic("rwlock: an RWMutex is made by Locker.RWMutex")
	}
	return m.refused
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
func (m *RWMutex) Unlock(ctx context.Context) error { return m.leave(ctx, Write) }

// RUnlock releases one read lock, as Unlock does.
func (m *RWMutex) RUnlock(ctx context.Context) error { return m.leave(ctx, Read) }

// Do locks for writing, runs fn and unlocks, also if fn panics. If Lock fails, fn does not run and the error is Lock's.
// Otherwise Do returns fn's error; if the lock was lost while fn ran, a *LostError is joined to it, as by Locker.Do.
// The context of fn has the fence of this section, and ends if the lock is lost. fn must leave the lock in the mode in
// which it got it: else the error matches ErrNotHeld.
func (m *RWMutex) Do(ctx context.Context, fn func(context.Context) error) error {
	return m.run(ctx, Write, fn)
}

// RDo is Do for reading, together with other readers.
func (m *RWMutex) RDo(ctx context.Context, fn func(context.Context) error) error {
	return m.run(ctx, Read, fn)
}

func (m *RWMutex) run(ctx context.Context, mode Mode, fn func(context.Context) error) (failed error) {
	if fn == nil {
		return errNilFn
	}
	if err := m.acquire(ctx, mode, engine.Wait); err != nil {
		return err
	}
	defer func() {
		if err := m.leave(ctx, mode); errors.Is(err, ErrLost) || errors.Is(err, ErrNotHeld) {
			failed = errs.Outcome(failed, err) // another error is of a release that goes on
		}
	}()
	return fn(m.Context(ctx))
}

// Upgrade turns a read lock of this RWMutex into the write lock as Lease.Upgrade does, also ahead of the goroutines of
// this process. The caller keeps the read lock also if the write hold is lost before the other readers have left: the
// error then matches ErrNoQuorum if no renewal was confirmed in time, else ErrNotAcquired. A reader that asks while
// another reader upgrades, in this process or elsewhere, gets ErrUpgrade at once: it has to unlock, and then to lock.
// Without a read lock the error matches ErrNotHeld. With a read lock that is lost it matches ErrLost, and RUnlock is
// still due. WithMaxHold counts on.
func (m *RWMutex) Upgrade(ctx context.Context) error { return m.convert(ctx, Write, engine.Upgrade) }

// TryUpgrade is Upgrade with a single attempt: while there are other readers, the error matches ErrNotAcquired.
func (m *RWMutex) TryUpgrade(ctx context.Context) error { return m.convert(ctx, Write, engine.Try) }

// Downgrade turns the write lock of this RWMutex into a read lock as Lease.Downgrade does. Waiting readers are let in,
// up to the next waiting writer: those of this process when Downgrade returns. After an error that matches neither
// ErrLost nor ErrClosed the caller still has the write lock. Without a write lock the error matches ErrNotHeld. With a
// write lock that is lost it matches ErrLost, and Unlock is still due.
func (m *RWMutex) Downgrade(ctx context.Context) error { return m.convert(ctx, Read, engine.Try) }

// Token returns the fencing token of the current holders, or 0 if there are none: the writer's token, or the token that
// the current readers share. Between a loss and the Unlock it is the token of the lost lease.
func (m *RWMutex) Token() fencing.Token {
	if s := m.current.Load(); s != nil {
		return s.fence.token()
	}
	return 0
}

// Context returns parent with the fence. It is cancelled when the lock that this RWMutex holds is released or lost; for
// a reader, when the last of the readers has unlocked. It continues through Upgrade and Downgrade, and then shows the
// new fence. Without a hold it is already cancelled, with ErrNotHeld as the cause. Each goroutine that calls Context
// gets the fence of the current section, also one that holds nothing: Do gives it to its section alone.
func (m *RWMutex) Context(parent context.Context) context.Context {
	if s := m.current.Load(); s != nil {
		return s.context(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	cancel(fmt.Errorf("%w: %q", ErrNotHeld, m.name))
	return ctx
}
