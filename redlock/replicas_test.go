package redlock_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// tunedLocker returns a locker over clients that are tuned for locks. It is closed when the test ends.
func (s *realSet) tunedLocker(opts ...rwlock.Option) *rwlock.Locker {
	s.t.Helper()
	var addrs []string
	for _, server := range s.servers {
		addrs = append(addrs, server.Addr())
	}
	clients, err := redlock.Dial(addrs, rueidis.ClientOption{})
	require.NoError(s.t, err)
	for _, c := range clients {
		s.t.Cleanup(c.Close)
	}
	l, err := redlock.New(clients, append(opts, testredis.Patience())...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = l.Close() })
	return l
}

// Each master's vote counts only with its own replica: a quorum may do without one of them, and not without two.
func TestVoteCountsWithItsReplicas(t *testing.T) {
	t.Parallel() // a frozen replica is waited for
	s := newRealSet(t, 3)
	var replicas []*testredis.Server
	for _, master := range s.servers {
		replica := testredis.Start(t)
		replica.ReplicaOf(master)
		replicas = append(replicas, replica)
	}
	opts := []rwlock.Option{rwlock.WithTTL(15 * time.Second), rwlock.WithReplicas(1, 3*time.Second)}
	for name, l := range map[string]*rwlock.Locker{"tuned": s.tunedLocker(opts...), "plain": s.peer(nil, opts...).Locker} {
		t.Run(name, func(t *testing.T) {
			onQuorum(t, l)
			replicas[0].Freeze()
			onQuorum(t, l, replicas[1], replicas[2])

			held, err := l.Lock(soon(t, time.Minute), "n")
			require.NoError(t, err)
			waiting := make(chan error, 1)
			go func() {
				next, err := l.Lock(soon(t, time.Minute), "n")
				if err == nil {
					err = next.Release(t.Context())
				}
				waiting <- err
			}()
			require.Eventually(t, func() bool {
				state, err := l.Inspect(t.Context(), "n")
				return err == nil && len(state.Waiters) == 1
			}, time.Minute, time.Millisecond)
			require.NoError(t, held.Renew(t.Context()), "by two masters with their replicas")
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, <-waiting, "handed off by two masters with their replicas")

			replicas[1].Freeze()
			_, err = l.TryLock(soon(t, time.Minute), "n")
			require.ErrorIs(t, err, rwlock.ErrReplicas)
			replicas[0].Thaw()
			replicas[1].Thaw()
			onQuorum(t, l)
		})
	}
}

// onQuorum takes the lock and gives it back, and fails the test if these replicas do not have it in between.
func onQuorum(t *testing.T, l *rwlock.Locker, replicas ...*testredis.Server) {
	t.Helper()
	lease, err := l.Lock(soon(t, time.Minute), "n")
	require.NoError(t, err)
	for _, replica := range replicas {
		record := command(t, replica, "HGET", "fencelock:{n}", "w")
		require.Contains(t, record, lease.Owner())
	}
	require.NoError(t, lease.Release(t.Context()))
}
