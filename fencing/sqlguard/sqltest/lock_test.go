package sqltest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// locker is one process's access to a lock service.
type locker interface {
	lock(ctx context.Context, resource string) (lease, error)
}

type lease interface {
	fence() fencing.Fence
	pause() // while the holder is stalled, its lease ends
	lost() bool
	unlock()
}

// ledger is a lock service without a clock: exclusive, with increasing tokens, and
// with leases that end at the one moment that matters.
type ledger struct {
	mu      sync.Mutex
	changed sync.Cond
	token   fencing.Token
	held    map[string]fencing.Token
}

func newLedger() *ledger {
	l := &ledger{held: map[string]fencing.Token{}}
	l.changed.L = &l.mu
	return l
}

func (l *ledger) lock(_ context.Context, resource string) (lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.held[resource] != 0 {
		l.changed.Wait()
	}
	l.token++
	l.held[resource] = l.token
	return entry{l, write(resource, l.token)}, nil
}

type entry struct {
	ledger *ledger
	f      fencing.Fence
}

func (e entry) fence() fencing.Fence { return e.f }

func (e entry) pause() { e.unlock() }

func (e entry) lost() bool {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	return e.ledger.held[e.f.Resource] != e.f.Token
}

func (e entry) unlock() {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	if e.ledger.held[e.f.Resource] == e.f.Token {
		delete(e.ledger.held, e.f.Resource)
		e.ledger.changed.Broadcast()
	}
}

// leaseTTL is short for the test's sake. A session takes some 20 ms; one that takes
// longer than this is a stalled holder that nobody had planned.
const leaseTTL = 250 * time.Millisecond

// remote is a locker of this module's own, on a Redis. Its leases are not renewed,
// as those of a process that stands still, so they end while the holder is
// stalled; that the holder notices nothing is up to it.
type remote struct{ locker *rwlock.Locker }

func newRemote(t *testing.T, server *testredis.Server) remote {
	t.Helper()
	locker, err := rwlock.New(server.Client(t), rwlock.WithTTL(leaseTTL), rwlock.WithoutRenewal())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
	return remote{locker}
}

func (r remote) lock(ctx context.Context, resource string) (lease, error) {
	held, err := r.locker.Lock(ctx, resource)
	if err != nil {
		return nil, err
	}
	return remoteLease{held, held.Fence()}, nil
}

type remoteLease struct {
	lease *rwlock.Lease
	f     fencing.Fence
}

func (l remoteLease) fence() fencing.Fence { return l.f }

func (remoteLease) pause() {}

func (l remoteLease) lost() bool { return l.lease.Err() != nil }

func (l remoteLease) unlock() { _ = l.lease.Release(context.Background()) } // it may be lost
