package rwlock

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/seed74116694/fencelock/fencing"
)

// RWMutex is a lock in the shape of sync.RWMutex, for the goroutines of a process among themselves and against other
// processes. Whoever unlocks need not be who locked. It is safe for concurrent use.
type RWMutex struct {
	locker *Locker
	name   string
	opts   []LockOption

	mu      sync.Mutex
	writers holdings // more than one only while a lost one has not been unlocked
	readers holdings
}

// holdings are leases of one mode, in the order in which they were taken. The first stands for all of them.
type holdings []*Lease

// ended returns the first lease that has ended, or nil. It is not called under the mutex: a lease that learns of its
// end here calls the user's hooks.
func (h holdings) ended() *Lease {
	for _, lease := range h {
		if lease.Err() != nil {
			return lease
		}
	}
	return nil
}

// take takes the lease out, if it is there still.
func (h *holdings) take(lease *Lease) bool {
	i := slices.Index(*h, lease)
	if i >= 0 {
		*h = slices.Delete(*h, i, i+1)
	}
	return i >= 0
}

// pop takes out one lease: a lost one, so that nobody's live lease is given back by the one who lost his; else the
// last, so that the first stays as long as any.
func (m *RWMutex) pop(from *holdings) *Lease {
	lost := m.snapshot(from).ended()
	m.mu.Lock()
	defer m.mu.Unlock()
	if lost != nil && from.take(lost) {
		return lost
	}
	if len(*from) == 0 {
		return nil
	}
	last := (*from)[len(*from)-1]
	from.take(last)
	return last
}

func (m *RWMutex) snapshot(h *holdings) holdings {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(*h)
}

func (m *RWMutex) keep(in *holdings, lease *Lease, err error) error {
	if err == nil {
		m.mu.Lock()
		*in = append(*in, lease)
		m.mu.Unlock()
	}
	return err
}

func (m *RWMutex) giveBack(ctx context.Context, from *holdings, mode Mode) error {
	lease := m.pop(from)
	if lease == nil {
		return fmt.Errorf("%w: %q for %s", ErrNotHeld, m.name, mode)
	}
	return lease.Release(ctx)
}

// RWMutex returns the lock of that name as an RWMutex. Two of the same name exclude each other as two processes do.
// The name is checked at the first use.
func (l *Locker) RWMutex(name string, opts ...LockOption) *RWMutex {
	return &RWMutex{locker: l, name: name, opts: opts}
}

// Lock takes the lock for writing; see Locker.Lock.
func (m *RWMutex) Lock(ctx context.Context) error {
	lease, err := m.locker.Lock(ctx, m.name, m.opts...)
	return m.keep(&m.writers, lease, err)
}

// TryLock takes the lock for writing if it is free; otherwise the error matches ErrNotAcquired.
func (m *RWMutex) TryLock(ctx context.Context) error {
	lease, err := m.locker.TryLock(ctx, m.name, m.opts...)
	return m.keep(&m.writers, lease, err)
}

// RLock takes the lock for reading; see Locker.RLock.
func (m *RWMutex) RLock(ctx context.Context) error {
	lease, err := m.locker.RLock(ctx, m.name, m.opts...)
	return m.keep(&m.readers, lease, err)
}

// TryRLock takes the lock for reading if it may at once; otherwise the error matches ErrNotAcquired.
func (m *RWMutex) TryRLock(ctx context.Context) error {
	lease, err := m.locker.TryRLock(ctx, m.name, m.opts...)
	return m.keep(&m.readers, lease, err)
}

// Unlock gives back the write lock. Without one the error matches ErrNotHeld; with one that was lost before, ErrLost.
func (m *RWMutex) Unlock(ctx context.Context) error { return m.giveBack(ctx, &m.writers, Write) }

// RUnlock gives back one read lock. Without one the error matches ErrNotHeld; with one that was lost before, ErrLost.
func (m *RWMutex) RUnlock(ctx context.Context) error { return m.giveBack(ctx, &m.readers, Read) }

// current is the lease that Token and Context speak of: the first that lives, or else one that was lost and not
// unlocked yet.
func (m *RWMutex) current() *Lease {
	var lost *Lease
	for _, held := range []holdings{m.snapshot(&m.writers), m.snapshot(&m.readers)} {
		for _, lease := range held {
			if lease.Err() == nil {
				return lease
			}
			lost = lease
		}
	}
	return lost
}

// Token returns the fencing token of what this RWMutex holds, or 0. All its readers have that of the first.
func (m *RWMutex) Token() fencing.Token {
	if lease := m.current(); lease != nil {
		return lease.Token()
	}
	return 0
}

// Context returns parent with the fence, cancelled when what this RWMutex holds is given back or lost. Without a hold
// it is cancelled already, with ErrNotHeld as the cause.
func (m *RWMutex) Context(parent context.Context) context.Context {
	if lease := m.current(); lease != nil {
		return lease.Context(parent)
	}
	ctx, cancel := context.WithCancelCause(parent)
	cancel(fmt.Errorf("%w: %q", ErrNotHeld, m.name))
	return ctx
}
