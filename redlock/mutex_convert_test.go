package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// twoPeers returns processes that cannot reach so many of five masters.
func twoPeers(t *testing.T, down int) (p, q *peer) {
	s := newSet(t, 5)
	p, q = s.peer(time.Millisecond), s.peer(2*time.Millisecond)
	p.warm(t)
	q.warm(t)
	cutOff(p.links[:down])
	cutOff(q.links[:down])
	return p, q
}

// An RWMutex over a quorum is upgraded and downgraded without a gap, also with a minority of the masters down: readers
// here and elsewhere are waited for, a second upgrade is refused, and whoever gives up still reads.
func TestAnRWMutexOfAQuorumIsUpgradedAndDowngraded(t *testing.T) {
	for name, down := range map[string]int{"all masters": 0, "a minority down": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, q := twoPeers(t, down)
				mu, elsewhere := p.RWMutex("n"), q.RWMutex("n")
				for _, one := range []*rwlock.RWMutex{mu, mu, elsewhere} {
					require.NoError(t, one.RLock(t.Context()))
				}
				token := mu.Token()
				require.ErrorIs(t, mu.Upgrade(soon(t, time.Second)), context.DeadlineExceeded)
				require.Equal(t, token, mu.Token())
				time.Sleep(time.Second)

				upgraded := make(chan error, 1)
				go func() { upgraded <- mu.Upgrade(t.Context()) }()
				time.Sleep(time.Second)
				require.ErrorIs(t, mu.Upgrade(t.Context()), rwlock.ErrUpgrade)
				require.ErrorIs(t, elsewhere.Upgrade(t.Context()), rwlock.ErrUpgrade)
				require.NoError(t, elsewhere.RUnlock(t.Context()))
				require.NoError(t, mu.RUnlock(t.Context()))
				require.NoError(t, <-upgraded)
				require.Greater(t, mu.Token(), token)
				token = mu.Token()
				require.ErrorIs(t, elsewhere.TryRLock(t.Context()), rwlock.ErrNotAcquired)

				reading := make(chan error, 2)
				for _, one := range []*rwlock.RWMutex{mu, elsewhere} {
					go func() { reading <- one.RLock(t.Context()) }()
				}
				time.Sleep(time.Second)
				require.NoError(t, mu.Downgrade(t.Context()))
				require.Greater(t, mu.Token(), token)
				require.NoError(t, <-reading)
				require.NoError(t, <-reading)
				for _, one := range []*rwlock.RWMutex{mu, mu, elsewhere} {
					require.NoError(t, one.RUnlock(t.Context()))
				}
				require.Zero(t, p.Stats().Held)
			})
		})
	}
}
