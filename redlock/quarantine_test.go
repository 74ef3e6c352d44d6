package redlock_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// A master that may have lost data is found by whatever could vote on it, whoever came to it first.

const quarantineTTL = 5 * time.Second

// firstToCome are others that use the master that has just come back, before anybody of its set does.
var firstToCome = map[string]func(t *testing.T, s *realSet){
	"nobody": func(*testing.T, *realSet) {},
	"a locker of that server alone, which is refused": func(t *testing.T, s *realSet) {
		require.ErrorIs(t, useAlone(t, s.servers[1], rueidis.ClientOption{}), rwlock.ErrOption)
	},
	"a locker of that server alone, another database": func(t *testing.T, s *realSet) {
		require.NoError(t, useAlone(t, s.servers[1], rueidis.ClientOption{SelectDB: 3}))
	},
	"a locker of that server alone, another prefix": func(t *testing.T, s *realSet) {
		require.NoError(t, useAlone(t, s.servers[1], rueidis.ClientOption{}, rwlock.WithPrefix("other")))
	},
	"another service on the same masters": func(t *testing.T, s *realSet) {
		const ttl = 200 * time.Millisecond
		var all sync.WaitGroup
		for range 2 {
			p := s.peer(nil, rwlock.WithPrefix("other"), rwlock.WithTTL(ttl), redlock.WithNodeTimeout(ttl/2))
			all.Go(func() {
				for begun := time.Now(); time.Since(begun) < 5*ttl; {
					if lease, err := p.Lock(soon(t, time.Second), "daily"); err == nil {
						_ = lease.Renew(t.Context())
						_ = lease.Release(t.Context())
					}
				}
			})
		}
		all.Wait()
	},
	"another process of the set": func(t *testing.T, s *realSet) {
		p := s.peer(nil, rwlock.WithTTL(quarantineTTL))
		p.use(t, "daily")
	},
}

func useAlone(t *testing.T, server *testredis.Server, base rueidis.ClientOption, opts ...rwlock.Option) error {
	t.Helper()
	client, err := rwlock.Dial(server.Addr(), base)
	require.NoError(t, err)
	defer client.Close()
	locker, err := rwlock.New(client, append(opts, testredis.Patience())...)
	require.NoError(t, err)
	defer locker.Close()
	lease, err := locker.Lock(t.Context(), "daily")
	if err != nil {
		return err
	}
	return errors.Join(lease.Renew(t.Context()), lease.Release(t.Context()))
}

// A master comes back from the save of before a lease; its scripts are known to it again before the set asks for them.
func TestRestartFromAnOldSaveIsFound(t *testing.T) {
	t.Parallel() // servers start and are waited for
	for who, come := range firstToCome {
		t.Run(who+" comes first", func(t *testing.T) {
			t.Parallel()
			s := newRealSet(t, 3)
			holder, other := s.peer(nil, rwlock.WithTTL(quarantineTTL)), s.peer(nil, rwlock.WithTTL(quarantineTTL))
			holder.use(t, "warm-up")
			other.use(t, "warm-up", "x")
			command(t, s.servers[1], "SAVE")
			holder.misses(2)
			lease, err := holder.Lock(t.Context(), "x", rwlock.WithoutRenewal())
			require.NoError(t, err)
			s.servers[1].Restart()
			come(t, s)
			other.misses(0)
			nobodyBeside(t, lease, other)

			other.proxies[0].Restore()
			next, err := other.Lock(soon(t, 6*quarantineTTL), "x")
			require.NoError(t, err)
			require.Greater(t, next.Token(), lease.Token())
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// A master that is a pair fails over and back. Its second server knows every script since it was the master before, and
// lags behind when it becomes the master again.
func TestFailbackIsFound(t *testing.T) {
	t.Parallel()
	s := newRealSet(t, 3)
	first, second := s.servers[1], testredis.Start(t)
	holder, other := s.peer(nil, rwlock.WithTTL(quarantineTTL)), s.peer(nil, rwlock.WithTTL(quarantineTTL))
	becomes := func(master *testredis.Server) {
		for _, p := range []*realPeer{holder, other} {
			p.proxies[1].Retarget(master.Addr())
			p.proxies[1].Cut()
		}
	}
	second.ReplicaOf(first)
	for _, p := range []*realPeer{holder, other} {
		p.use(t, "x", "y")
	}
	awaitReplica(t, first)

	follow(t, second, nil)
	becomes(second)
	first.ReplicaOf(second)
	until := time.Now().Add(quarantineTTL + time.Second)
	for time.Now().Before(until) { // others work on; its quarantine goes by
		holder.use(t, "y")
		other.use(t, "z")
		time.Sleep(50 * time.Millisecond)
	}
	awaitReplica(t, second)

	nowhere := testredis.Start(t)
	nowhere.Kill()
	follow(t, first, nowhere) // the replica lags from now on
	holder.misses(2)
	lease, err := holder.Lock(t.Context(), "x", rwlock.WithoutRenewal())
	require.NoError(t, err)
	follow(t, first, nil)
	becomes(first)
	other.use(t, "y")
	other.misses(0)
	nobodyBeside(t, lease, other)
}
