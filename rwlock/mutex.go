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
// readers between two writers together. They are a cohort: one of them takes the lock from Redis, and they hand it on
// among themselves without a command, until nobody of them wants it or, a little later, another process does. That one
// says so by a message to this process, and at the latest by the answer to the next renewal.
//
// Every writer has a fencing token of its own, larger than all before it; the readers that are in together share one.
// If the lock is lost, its holders still stand in the RWMutex until they unlock, and Unlock tells them of the loss; no
// other goroutine of the process gets in before. So Token and Context always speak of whoever holds the RWMutex, and a
// missing Unlock keeps it locked, as with a sync.RWMutex.
//
// WithLinger keeps the lock in this process for a time after the last Unlock. WithMaxHold counts for each writer, and
// from the last reader that joined. WithoutRenewal makes every writer take the lock from Redis for itself, and a reader
// that joins others cost a command, since it has to extend their lease.
//
// It is safe for concurrent use, and made by Locker.RWMutex alone: the zero value cannot be used. Whoever unlocks need
// not be who locked.
type RWMutex struct {
	place
	refused error // why it cannot be used; of the place only the name is set then
}

// place is where the goroutines of an RWMutex are, one after the other or reading together, and what the process has on
// Redis for them. Its parts, each in a file of its own:
//
//	cohort      who is in and who waits, in the order of arrival; it knows nothing of Redis
//	readers     those who read together, counted without a mutex; in the cohort
//	remoteHold  the lease that the process has, with its block of tokens and how long it still serves
//	section     what those who are in have: one token, and contexts that end with it
//	bound       WithMaxHold for a section
//	bid         the attempt of the one who leads: under the remote hold that there is, or by one from Redis
//	conversion  one who is in and turns from reading to writing, or back
//	linger      how long the remote hold is kept while nobody is in
//	mutexes     the registry of a locker: one RWMutex for a name
//
// A call of Lock tries three ways, each dearer than the one before: beside readers or under a lease that nobody uses,
// without a command and for readers without a mutex; from the one who leaves, by the queue; and as the leader, from
// Redis. Unlock has four: it leaves others behind, hands the place on, keeps the lease, or gives it back.
//
// in and remote are read without mu by those who enter beside readers and by Token and Context. Who reads them so may
// see a section that has just ended: it asks the lease's trust, or the reader count, which says so too.
//
// Mutexes are taken in the order mu, section.mu, mutexes.mu; the engine's list of locks that are being given back comes
// last. None of them is held over a call that sends something or that ends contexts, so none is held when hooks, the
// ends of leases or what a caller has made a parent of call in.
type place struct {
	locker   *Locker // nil where the RWMutex cannot be used
	name     string
	settings settings.Lock
	terms    *engine.Terms
	released error // how each section ends that is not lost

	in     atomic.Pointer[section]    // of those who are in; stored under mu
	remote atomic.Pointer[remoteHold] // what the process has on Redis; stored under mu
	mu     sync.Mutex                 // never held over a call of the engine
	local  cohort
	block  int           // tokens to ask for next
	seen   fencing.Token // the largest that it has had
	linger linger
}

// RWMutex returns the lock of that name as an RWMutex, the same one for the same name and equal options. While one is
// in use in this process, held or waited for, one of that name with other options fails with an *OptionError, since
// they would have to share a lease. The name and the options are checked at the first use. An RWMutex that is not in
// use costs no goroutine and no command, and need not be closed.
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
		// The limit of the waiting spans the local queue, and that of a hold is the section's: both are kept here.
		if s != l.defaults || s.MaxWait > 0 || s.MaxHold > 0 {
			s.MaxWait, s.MaxHold = 0, 0
			m.terms = s.Terms()
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
func (m *RWMutex) Unlock(ctx context.Context) error { return m.unlockFor(ctx, Write) }

// RUnlock gives back one read lock, as Unlock does.
func (m *RWMutex) RUnlock(ctx context.Context) error { return m.unlockFor(ctx, Read) }

func (m *RWMutex) unlockFor(ctx context.Context, mode Mode) error {
	if m.isUnusable() {
		return m.unusable()
	}
	return m.leave(ctx, mode)
}

// Token returns the fencing token of those who hold this RWMutex, or 0: the writer's, or the one that the readers who
// are in together share. It is that of the lost lease between a loss and the Unlock.
func (m *RWMutex) Token() fencing.Token {
	if s := m.in.Load(); s != nil {
		return s.fence.token()
	}
	return 0
}

// Context returns parent with the fence, cancelled when what this RWMutex holds is given back or lost: for a reader,
// when the last of the readers has unlocked. It goes on through Upgrade and Downgrade, and shows the new fence then.
// Without a hold it is cancelled already, with ErrNotHeld as the cause.
func (m *RWMutex) Context(parent context.Context) context.Context {
	if s := m.in.Load(); s != nil {
		return s.context(parent)
	}
	return endedContext(parent, fmt.Errorf("%w: %q", ErrNotHeld, m.name))
}

// endedContext returns parent, cancelled already.
func endedContext(parent context.Context, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	cancel(cause)
	return ctx
}
