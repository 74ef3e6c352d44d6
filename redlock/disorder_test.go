package redlock_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

const disorderTTL = 2 * time.Second

// A minority that is not in order has no vote, and is named in the log. It stops nobody: neither the processes that
// are at work nor one that starts.
func TestMinorityOutOfOrderStopsNobody(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		disturb func(t *testing.T, s *realSet) (now *realSet, ttl time.Duration)
		says    string
	}{
		"a save from before a replacement": {
			func(t *testing.T, s *realSet) (*realSet, time.Duration) {
				command(t, s.servers[0], "SAVE")
				now := &realSet{t: t, servers: []*testredis.Server{s.servers[0], s.servers[1], testredis.Start(t)}}
				return now, disorderTTL
			}, "belongs to another set",
		},
		"a save from before a change of the TTL": {
			func(t *testing.T, s *realSet) (*realSet, time.Duration) {
				command(t, s.servers[0], "SAVE")
				return s, disorderTTL + time.Second
			}, "was set up for",
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newRealSet(t, 3)
			old := s.dialled(rwlock.WithTTL(disorderTTL))
			old.use(t, "x")
			now, ttl := c.disturb(t, s)
			require.NoError(t, old.Close())
			for _, server := range now.servers {
				command(t, server, "DEL", "fencelock:master")
			}
			var log journal
			atWork := now.dialled(rwlock.WithTTL(ttl), log.option())
			atWork.use(t, "x")
			lease, err := atWork.Lock(t.Context(), "leader")
			require.NoError(t, err)
			now.servers[0].Restart()
			worksBeside(t, atWork, &log, c.says)
			worksBeside(t, now.dialled(rwlock.WithTTL(ttl), log.option()), &log, c.says)
			require.NoError(t, lease.Release(t.Context()))
		})
	}
	t.Run("a replica", func(t *testing.T) {
		t.Parallel()
		s := newRealSet(t, 3)
		var log journal
		atWork := s.dialled(rwlock.WithTTL(disorderTTL), log.option())
		atWork.use(t, "x")
		follow(t, s.servers[0], testredis.Start(t))
		atWork.proxies[0].Cut()
		worksBeside(t, atWork, &log, "is a replica")
		worksBeside(t, s.dialled(rwlock.WithTTL(disorderTTL), log.option()), &log, "is a replica")
		follow(t, s.servers[0], nil)
		atWork.misses(1)
		atWork.use(t, "x") // in order again, after the quarantine: it has lost what it had
	})
	t.Run("a server that nobody knows", func(t *testing.T) {
		t.Parallel()
		s := newRealSet(t, 3)
		s.dialled(rwlock.WithTTL(disorderTTL)).use(t, "x")
		other := &realSet{t: t, servers: append(s.servers[:2:2], testredis.Start(t))}
		var log journal
		worksBeside(t, other.dialled(rwlock.WithTTL(disorderTTL), log.option()), &log, "has no marker")
	})
}

// worksBeside uses locks until the log names the master that is not in order, and after. No acquisition may be refused.
func worksBeside(t *testing.T, p *realPeer, log *journal, says string) {
	t.Helper()
	take := func() bool {
		lease, err := p.TryLock(soon(t, 30*time.Second), "daily")
		require.False(t, errors.Is(err, rwlock.ErrOption), "%v", err)
		return err == nil && lease.Release(t.Context()) == nil
	}
	named := func() bool { return strings.Contains(log.String(), says) }
	require.Eventually(t, func() bool { return take() && named() }, time.Minute, 20*time.Millisecond, says)
	for range 3 { // the next surveys find the same
		time.Sleep(time.Second)
		require.Eventually(t, take, time.Minute, time.Millisecond)
	}
}

// One master is moved by a replica: it is copied, the copy is promoted, and clients go over to the new list one by one.
// Lists that differ in that pair would have quorums that share no server: the copy has no vote, whoever asks it.
func TestMovedMasterHasNoVote(t *testing.T) {
	t.Parallel()
	s := newRealSet(t, 3)
	moved := testredis.Start(t)
	list := &realSet{t: t, servers: append(s.servers[:2:2], moved)}
	old := s.dialled(rwlock.WithTTL(disorderTTL))
	old.use(t, "warm-up")
	moved.ReplicaOf(s.servers[2])
	awaitReplica(t, s.servers[2])
	follow(t, moved, nil)
	var log journal
	next := list.dialled(rwlock.WithTTL(disorderTTL), log.option())
	untuned := list.peer(nil, rwlock.WithTTL(disorderTTL))
	for begun := time.Now(); time.Since(begun) < 2*disorderTTL; { // longer than a quarantine would last
		for _, p := range []*realPeer{old, next, untuned} {
			p.use(t, "daily")
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Contains(t, log.String(), "is another server than the one at")
	require.Contains(t, log.String(), next.proxies[2].Option().InitAddress[0])

	old.misses(1)
	next.misses(0)
	untuned.misses(0)
	alone := list.dialled(rwlock.WithTTL(disorderTTL)) // it has never met the others
	alone.misses(0)
	alone.misses(1)
	lease, err := old.Lock(soon(t, time.Minute), "x", rwlock.WithoutRenewal())
	require.NoError(t, err)
	nobodyBeside(t, lease, next, untuned, alone)
	_, err = next.TryLock(soon(t, time.Second), "x")
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	var abstains *rwlock.AbstainError
	require.ErrorAs(t, err, &abstains)
	require.ErrorContains(t, abstains, "is another server than the one at")
}

// Two processes name the same masters differently. One that was emptied is known by its process, also where only those
// of the other names are left.
func TestMastersOfTwoNames(t *testing.T) {
	t.Parallel()
	s := newRealSet(t, 3)
	var named []string
	for _, server := range s.servers {
		_, port, err := net.SplitHostPort(server.Addr())
		require.NoError(t, err)
		named = append(named, "localhost:"+port)
	}
	founder := s.dialled(rwlock.WithTTL(disorderTTL))
	founder.use(t, "x")
	require.NoError(t, founder.Close())
	command(t, s.servers[2], "FLUSHALL")
	clients, err := redlock.Dial(named, rueidis.ClientOption{})
	require.NoError(t, err)
	other, err := redlock.New(clients, rwlock.WithTTL(disorderTTL), testredis.Patience())
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = other.Close()
		for _, c := range clients {
			c.Close()
		}
	})
	take := func() bool {
		lease, err := other.Lock(soon(t, 30*time.Second), "x")
		return err == nil && lease.Release(t.Context()) == nil
	}
	require.Eventually(t, take, time.Minute, time.Millisecond)
	require.Equal(t, command(t, s.servers[0], "HGET", "fencelock:master", "set"),
		command(t, s.servers[2], "HGET", "fencelock:master", "set"), "it is one of the set again")
	s.servers[0].Kill()
	require.Eventually(t, take, time.Minute, time.Millisecond, "and votes")
}

// A process has been idle while each master restarted many times. It finds them in order, and makes nobody abstain.
func TestIdleProcessMissesRestarts(t *testing.T) {
	t.Parallel()
	s := newRealSet(t, 3, "--appendonly", "yes", "--appendfsync", "always")
	idle, busy := s.dialled(rwlock.WithTTL(disorderTTL)), s.dialled(rwlock.WithTTL(disorderTTL))
	idle.use(t, "x")
	busy.use(t, "x")
	until := make([]any, len(s.servers))
	for range 10 {
		for i, server := range s.servers {
			server.Restart()
			require.Eventually(t, func() bool { // the restart has been noticed
				if lease, err := busy.TryLock(soon(t, time.Second), "daily"); err == nil {
					_ = lease.Release(t.Context())
				}
				now, err := server.Command("HGET", "fencelock:master", "until")
				noticed := err == nil && now != until[i]
				until[i] = now
				return noticed
			}, time.Minute, 5*time.Millisecond)
		}
	}
	busy.use(t, "daily")
	time.Sleep(disorderTTL + 100*time.Millisecond)
	for i, server := range s.servers {
		until[i] = command(t, server, "HGET", "fencelock:master", "until")
	}
	idle.use(t, "x")
	for i, server := range s.servers {
		require.Equal(t, until[i], command(t, server, "HGET", "fencelock:master", "until"), "master %d abstains anew", i)
	}
}

// A pair fails over, and back to the server that lags. Whoever starts then has seen neither, and the marker there is
// that of its own process; but the other masters know that another process was there since.
func TestNewProcessFindsAFailback(t *testing.T) {
	t.Parallel()
	s := newRealSet(t, 3)
	first, second := s.servers[1], testredis.Start(t)
	pair := testredis.NewProxy(t, first.Addr())
	becomes := func(master *testredis.Server) {
		pair.Retarget(master.Addr())
		pair.Cut()
	}
	start := func(addrs ...string) *realPeer {
		clients, err := redlock.Dial(addrs, rueidis.ClientOption{})
		require.NoError(t, err)
		locker, err := redlock.New(clients, rwlock.WithTTL(disorderTTL), testredis.Patience())
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = locker.Close()
			for _, c := range clients {
				c.Close()
			}
		})
		return &realPeer{Locker: locker}
	}
	link := testredis.NewProxy(t, s.servers[2].Addr())
	holder := start(s.servers[0].Addr(), pair.Addr(), link.Addr())
	holder.use(t, "x")
	second.ReplicaOf(first)
	awaitReplica(t, first)
	follow(t, second, nil)
	becomes(second)
	for begun := time.Now(); time.Since(begun) < disorderTTL+time.Second; time.Sleep(20 * time.Millisecond) {
		holder.use(t, "daily")
	}

	link.Refuse()
	link.Cut()
	lease, err := holder.Lock(soon(t, time.Minute), "x", rwlock.WithoutRenewal())
	require.NoError(t, err)
	becomes(first) // it has gone on as a master, and its marker is its own
	away := testredis.NewProxy(t, s.servers[0].Addr())
	away.Refuse()
	next := start(away.Addr(), pair.Addr(), s.servers[2].Addr())
	nobodyBeside(t, lease, next)
	next.use(t, "x") // after the quarantine
}
