package redlock_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// quorumOf has the addresses of new servers.
func quorumOf(servers []*testredis.Server) (addrs []string) {
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func openOver(t *testing.T, addrs []string, opts ...rwlock.Option) *rwlock.Locker {
	t.Helper()
	all := append(append([]rwlock.Option{testredis.Silent()}, opts...), testredis.Patience())
	locker := expect.NoError(redlock.Open(addrs, all...)).In(t)
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
	return locker
}

// Masters that are founded by the caller's word grant the first lock once they are, and form one set with three terms.
func TestFoundedMastersGrantAtOnce(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 3)
	addrs := quorumOf(w.Servers)
	hour := rwlock.WithTTL(time.Hour) // nobody would wait for a quarantine of that length
	require.NoError(t, redlock.Found(w.Soon(time.Minute), addrs, hour))

	locker := openOver(t, []string{addrs[2], addrs[0], addrs[1]}, hour)
	require.NoError(t, locker.Ping(w.Soon(time.Minute)))
	lease := expect.NoError(locker.TryLock(w.Soon(time.Minute), "first")).In(t)
	require.NoError(t, lease.Release(w.Soon(time.Minute)))

	for _, s := range w.Servers {
		terms := expect.NoError(s.Command("HGET", "fencelock:master", "terms")).In(t)
		require.Regexp(t, `^1:\w+ 1:\w+ 1:\w+$`, terms, "each knows the process of every seat")
	}
	err := redlock.Found(w.Soon(time.Minute), addrs, hour)
	require.ErrorContains(t, err, "master 0 ("+addrs[0]+") has a marker: it is not new")
	require.NoError(t, locker.Ping(w.Soon(time.Minute)), "the set is as it was")
}

// A false word costs two holders at once. Their tokens are in order, also where the first one ran ahead of the clock.
func TestAFalseWordLeavesTokensInOrder(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 3)
	addrs := quorumOf(w.Servers)
	require.NoError(t, redlock.Found(w.Soon(time.Minute), addrs))
	locker := openOver(t, addrs)
	first := expect.NoError(locker.TryLock(w.Soon(time.Minute), "n")).In(t)
	require.NoError(t, locker.Close(), "else it might write a marker before Found looks")
	for _, s := range w.Servers {
		expect.NoError(s.Command("FLUSHALL")).In(t)
	}
	lost := expect.NoError(w.Servers[0].Command("TIME")).In(t).([]any)
	require.NoError(t, redlock.Found(w.Soon(time.Minute), addrs), "they look new")
	second := expect.NoError(openOver(t, addrs).TryLock(w.Soon(time.Minute), "n")).In(t)
	require.Greater(t, second.Token(), first.Token())
	seconds := expect.NoError(strconv.ParseUint(lost[0].(string), 10, 64)).In(t)
	micros := expect.NoError(strconv.ParseUint(lost[1].(string), 10, 64)).In(t)
	require.Greater(t, uint64(second.Token()), seconds*1e6+micros+1e6, "no token may be further ahead of the clock")
}

// Masters that cannot be new are not founded, and get no marker.
func TestFoundRefusesMastersThatAreNotNew(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 3)
	addrs := quorumOf(w.Servers)
	for name, c := range map[string]struct {
		make, undo func()
		refusal    string
	}{
		"key of a lock": {
			func() { expect.NoError(w.Servers[1].Command("SET", "fencelock:{a}", "x")).In(t) },
			func() { expect.NoError(w.Servers[1].Command("FLUSHALL")).In(t) },
			`has the key "fencelock:{a}": it is not new`,
		},
		"marker of one that decided alone": {
			func() { expect.NoError(w.Servers[2].Command("HSET", "fencelock:master", "layout", "3")).In(t) },
			func() { expect.NoError(w.Servers[2].Command("FLUSHALL")).In(t) },
			"master 2 (" + addrs[2] + ") has a marker: it is not new",
		},
		"a replica": {
			func() { expect.NoError(w.Servers[2].Command("REPLICAOF", "127.0.0.1", "1")).In(t) },
			func() { expect.NoError(w.Servers[2].Command("REPLICAOF", "NO", "ONE")).In(t) },
			"is a replica",
		},
		"no answer": {w.Servers[0].Kill, w.Servers[0].Restart, "master 0 (" + addrs[0] + ") does not answer: "},
	} {
		c.make()
		err := redlock.Found(w.Soon(time.Minute), addrs)
		require.ErrorContains(t, err, "redlock: the masters are not founded: ", name)
		require.ErrorContains(t, err, c.refusal, name)
		c.undo()
		for _, s := range w.Servers {
			require.Nil(t, expect.NoError(s.Command("HGET", "fencelock:master", "set")).In(t), name)
		}
	}
	err := redlock.Found(w.Soon(time.Minute), addrs[:2])
	require.ErrorIs(t, err, rwlock.ErrOption)
	require.ErrorIs(t, redlock.Found(t.Context(), addrs, nil), rwlock.ErrOption)
	late := errors.New("the deployment has ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(late)
	err = redlock.Found(ctx, addrs)
	require.ErrorIs(t, err, late)
	require.ErrorIs(t, err, context.Canceled)
	require.NotContains(t, err.Error(), "\n")
	require.NoError(t, redlock.Found(w.Soon(time.Minute), addrs), "what was refused can be founded")
}

// Ping says why no lock is granted for good, and how long the first one takes. It changes nothing.
func TestPingKnowsTheSet(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 5)
	addrs := quorumOf(w.Servers)
	ping := func(addrs []string, opts ...rwlock.Option) error {
		clients := expect.NoError(redlock.Dial(addrs, testredis.ClientOption(addrs[0]))).In(t)
		locker := expect.NoError(redlock.New(clients, append(opts, testredis.Silent(), testredis.Patience())...)).In(t)
		defer func() {
			require.NoError(t, locker.Close())
			for _, c := range clients {
				c.Close()
			}
		}()
		return locker.Ping(w.Soon(time.Minute))
	}
	three := addrs[:3]
	err := ping(three)
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	require.ErrorContains(t, err, "belongs to no set so far: the first lock founds it, and takes 10s")
	for _, s := range w.Servers {
		require.Zero(t, expect.NoError(s.Command("DBSIZE")).In(t), "Ping founds nothing")
	}

	require.NoError(t, redlock.Found(w.Soon(time.Minute), three))
	require.NoError(t, ping(three))
	err = ping(three, rwlock.WithTTL(20*time.Second))
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	require.ErrorContains(t, err, `was set up for "3 masters, quorum 2, longest TTL 10s"`)
	err = ping(addrs)
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	require.ErrorContains(t, err, "5 masters, quorum 3")
	err = ping([]string{addrs[0], addrs[1], addrs[3]})
	require.ErrorContains(t, err, "has no marker, and the set that the others belong to has its masters at")
	require.NotErrorIs(t, err, rwlock.ErrNoQuorum, "two are enough")
	require.ErrorIs(t, ping([]string{addrs[0], addrs[3], addrs[4]}), rwlock.ErrNoQuorum)

	alone := testkit.Dial(t, addrs[0], testredis.ClientOption(""), testredis.Silent())
	require.ErrorContains(t, alone.Ping(w.Soon(time.Minute)), "alone it does not know of their locks")
	unused := testkit.Dial(t, addrs[4], testredis.ClientOption(""), testredis.Silent())
	require.NoError(t, unused.Ping(w.Soon(time.Minute)))
	require.Zero(t, expect.NoError(w.Servers[4].Command("DBSIZE")).In(t))
}

// Open founds a set in the background, so that a probe that waits for Ping is followed by a lock that waits no more.
func TestOpenBeginsTheSet(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 3)
	locker := openOver(t, quorumOf(w.Servers), rwlock.WithTTL(2*time.Second))
	ready := func() bool { return locker.Ping(w.Soon(time.Minute)) == nil }
	require.Eventually(t, ready, testkit.Patience, 10*time.Millisecond)
	lease := expect.NoError(locker.Lock(w.Soon(time.Minute), "first")).In(t)
	require.NoError(t, lease.Release(w.Soon(time.Minute)))
}
