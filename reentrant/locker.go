package reentrant

import (
	"context"
	"fmt"
	"sync"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// Locker takes locks for the owners that contexts name. It is safe for concurrent use. A process needs one for each
// rwlock.Locker: two do not know of each other's holds. The zero value cannot be used; New makes one.
type Locker struct {
	remote   *rwlock.Locker
	maxDepth int
	invalid  error // what New was given and cannot work

	mu       sync.Mutex // never held over a call of the remote locker or of a lease
	sections map[sectionKey]*section
}

// New returns a Locker over l, which stays the caller's to close. It holds nothing that needs closing itself. If an
// argument breaks a rule, every acquisition fails with the *rwlock.OptionError that says so.
func New(l *rwlock.Locker, opts ...Option) *Locker {
	locker := &Locker{remote: l, maxDepth: defaultMaxDepth, sections: make(map[sectionKey]*section)}
	if l == nil {
		locker.refuse("locker", "nil", "must be a locker")
	}
	for _, opt := range opts {
		if opt == nil {
			locker.refuse("option", "nil", "must not be nil")
			continue
		}
		opt(locker)
	}
	return locker
}

// Lock takes the lock for writing, for the owner in ctx. The owner's first acquisition is that of rwlock.Locker.Lock,
// with its options and errors; under AsOwner it joins first, in a single attempt. A nested one counts on the lease that
// is there, or fails with the lease's *rwlock.LostError, with ErrDepth, or with *rwlock.AcquireError if ctx has ended.
// Inside a read lock it upgrades that, which may wait for other readers; see rwlock.Lease.Upgrade for its errors. Every
// Hold must be released, also after a loss.
func (l *Locker) Lock(ctx context.Context, name string, opts ...rwlock.LockOption) (*Hold, error) {
	return l.acquire(ctx, request{name: name, mode: rwlock.Write, opts: opts})
}

// TryLock is Lock with a single attempt: *rwlock.AcquireError at once if others hold the lock or wait for it.
func (l *Locker) TryLock(ctx context.Context, name string, opts ...rwlock.LockOption) (*Hold, error) {
	return l.acquire(ctx, request{name: name, mode: rwlock.Write, try: true, opts: opts})
}

// RLock takes the lock for reading, for the owner in ctx. Inside the owner's write lock it counts on that one, and its
// fence stays that of a writer.
func (l *Locker) RLock(ctx context.Context, name string, opts ...rwlock.LockOption) (*Hold, error) {
	return l.acquire(ctx, request{name: name, mode: rwlock.Read, opts: opts})
}

// TryRLock is RLock with a single attempt.
func (l *Locker) TryRLock(ctx context.Context, name string, opts ...rwlock.LockOption) (*Hold, error) {
	return l.acquire(ctx, request{name: name, mode: rwlock.Read, try: true, opts: opts})
}

// request is one acquisition as the caller wants it.
type request struct {
	name string
	mode rwlock.Mode
	try  bool
	opts []rwlock.LockOption
}

func (l *Locker) acquire(ctx context.Context, r request) (*Hold, error) {
	switch {
	case l.invalid != nil:
		return nil, l.invalid
	case l.isZero():
		return nil, errZeroLocker
	}
	id, ok := identityFrom(ctx)
	if !ok {
		return nil, fmt.Errorf("%w: lock %q", ErrNoOwner, r.name)
	}
	key := sectionKey{owner: id.owner, name: r.name}
	if claim, claimed := fencing.FromContext(ctx, r.name); claimed && id.joins {
		if h, err := l.nestIn(ctx, key, claim.Token, id, r); h != nil || err != nil {
			return h, err
		}
		key.claimed = claim.Token
	}
	for {
		s, first := l.enter(key)
		if first {
			return s.open(ctx, id, r)
		}
		if err := s.await(ctx, r); err != nil {
			return nil, err
		}
		// A section that was never opened or is closed by now is out of the table: look again.
		if h, err := s.nest(ctx, id, r); h != nil || err != nil {
			return h, err
		}
	}
}

// nestIn nests in the section of that key if its lease has the token that ctx claims. It returns nil and no error if it
// has another one: an owner may have several read holds of a lock, and that one may be in another process.
func (l *Locker) nestIn(
	ctx context.Context, key sectionKey, claimed fencing.Token, id *identity, r request,
) (*Hold, error) {
	l.mu.Lock()
	s := l.sections[key]
	l.mu.Unlock()
	if s == nil {
		return nil, nil
	}
	if err := s.await(ctx, r); err != nil {
		return nil, err
	}
	if s.lease == nil || s.lease.Token() != claimed {
		return nil, nil
	}
	return s.nest(ctx, id, r)
}

// enter returns the owner's section of a lock. The one for whom it is first has to open it.
func (l *Locker) enter(k sectionKey) (s *section, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sections[k]; s != nil {
		return s, false
	}
	s = &section{locker: l, key: k, opened: make(chan struct{})}
	l.sections[k] = s
	return s, true
}
