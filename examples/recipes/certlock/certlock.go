// Package certlock is a recipe for certmagic: of many processes, one obtains or renews a certificate, and the other
// ones learn at once that it has.
package certlock

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/caddyserver/certmagic"

	"github.com/seed74116694/fencelock/rwlock"
)

// Storage is another storage with the locks of this library: a certmagic.Locker and a certmagic.TryLocker. New makes
// one. The leases renew themselves, so it is no certmagic.LockLeaseRenewer.
type Storage struct {
	certmagic.Storage
	locker *rwlock.Locker
	mu     sync.Mutex
	leases map[string][]*rwlock.Lease // the oldest first; only a lost one has another after it
}

// New returns a Storage that keeps its data in data. The name of a lock is that of certmagic after "certmagic/".
func New(data certmagic.Storage, locker *rwlock.Locker) *Storage {
	return &Storage{Storage: data, locker: locker, leases: map[string][]*rwlock.Lease{}}
}

// Lock waits for the lock in its queue, without polls.
func (s *Storage) Lock(ctx context.Context, name string) error {
	lease, err := s.locker.Lock(ctx, "certmagic/"+name)
	if err != nil {
		return err
	}
	s.keep(name, lease)
	return nil
}

// TryLock returns false and nil if another process holds the lock.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	lease, err := s.locker.TryLock(ctx, "certmagic/"+name)
	if errors.Is(err, rwlock.ErrNotAcquired) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.keep(name, lease)
	return true, nil
}

func (s *Storage) keep(name string, lease *rwlock.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases[name] = append(s.leases[name], lease)
}

// Unlock gives the lock back. A lock that was lost needs that no more: the logger of the locker has the loss.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	lease := s.take(name)
	if lease == nil {
		return fmt.Errorf("certlock: Unlock of %q without Lock", name)
	}
	if err := lease.Release(ctx); !errors.Is(err, rwlock.ErrLost) {
		return err
	}
	return nil
}

func (s *Storage) take(name string) *rwlock.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := s.leases[name]
	if len(leases) == 0 {
		return nil
	}
	if s.leases[name] = leases[1:]; len(leases) == 1 {
		delete(s.leases, name)
	}
	return leases[0]
}
