// Package gooselock is a recipe for goose: of many processes that start at once, one applies the migrations.
package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/seed74116694/fencelock/rwlock"
)

// Locker is a lock.Locker of goose, for goose.WithLocker of the providers of one process.
//
// The next process waits in the queue, and then finds the migrations applied. A migration is not fenced: where a
// process may be paused for longer than the TTL, take the lock of the database in place of this one, if it has one.
type Locker struct {
	locker *rwlock.Locker
	name   string
	opts   []rwlock.LockOption
	mu     sync.Mutex
	leases []*rwlock.Lease // the oldest first; only a lost one has another after it
}

// New returns a Locker for the lock of that name. opts are for each acquisition, such as rwlock.WithMaxWait.
func New(locker *rwlock.Locker, name string, opts ...rwlock.LockOption) *Locker {
	return &Locker{locker: locker, name: name, opts: opts}
}

// Lock waits for the lock.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	lease, err := l.locker.Lock(ctx, l.name, l.opts...)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases = append(l.leases, lease)
	return nil
}

// Unlock gives the lock back. The error matches rwlock.ErrLost if it was lost: another process may have migrated too.
func (l *Locker) Unlock(ctx context.Context, _ *sql.DB) error {
	l.mu.Lock()
	if len(l.leases) == 0 {
		l.mu.Unlock()
		return errors.New("gooselock: Unlock without Lock")
	}
	lease := l.leases[0]
	l.leases = l.leases[1:]
	l.mu.Unlock()
	return lease.Release(ctx)
}
