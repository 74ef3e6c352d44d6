package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// What can be seen without asking is refused by New.
func TestNewRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSet(t, 5).link(nil).clients
		for what, test := range map[string]struct {
			masters []rueidis.Client
			opts    []rwlock.Option
			says    string
		}{
			"none":                  {nil, nil, "odd number of at least 3"},
			"one":                   {c[:1], nil, "odd number of at least 3"},
			"two":                   {c[:2], nil, "odd number of at least 3"},
			"four":                  {c[:4], nil, "odd number of at least 3"},
			"nil among them":        {[]rueidis.Client{c[0], nil, c[2]}, nil, "master 1 must not be nil"},
			"one client twice":      {[]rueidis.Client{c[0], c[1], c[0]}, nil, "masters 0 and 2 are the same client"},
			"no patience":           {c, []rwlock.Option{redlock.WithNodeTimeout(0)}, "WithNodeTimeout"},
			"patience beyond TTL":   {c, []rwlock.Option{redlock.WithNodeTimeout(time.Minute)}, "below the TTL of 10s"},
			"negative drift":        {c, []rwlock.Option{redlock.WithDrift(-0.1)}, "WithDrift"},
			"drift of half":         {c, []rwlock.Option{redlock.WithDrift(0.5)}, "WithDrift"},
			"no quarantine":         {c, []rwlock.Option{redlock.WithQuarantine(0)}, "WithQuarantine"},
			"quarantine within TTL": {c, []rwlock.Option{redlock.WithQuarantine(time.Second)}, "not be below the TTL of 10s"},
			"nil option":            {c, []rwlock.Option{nil}, "must not be nil"},
		} {
			_, err := redlock.New(test.masters, test.opts...)
			require.ErrorIs(t, err, rwlock.ErrOption, what)
			require.ErrorContains(t, err, test.says, what)
		}
	})
}

// All clients of a set count on nobody's leases outliving the quarantine.
func TestAcquisitionBeyondTheQuarantineIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSet(t, 3).peer(0, redlock.WithQuarantine(20*time.Second))
		lease, err := p.Lock(t.Context(), "x", rwlock.WithTTL(20*time.Second))
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		_, err = p.Lock(t.Context(), "x", rwlock.WithTTL(20*time.Second+time.Millisecond))
		require.ErrorIs(t, err, rwlock.ErrOption)
		require.ErrorContains(t, err, "must not exceed the quarantine of 20s, see WithQuarantine")
	})
}

// Clients that would count otherwise than those before them are refused, and told of both.
func TestOtherRulesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		s.peer(0).warm(t)
		for says, refused := range map[string]func() *peer{
			"3 masters, quorum 2, longest TTL 10s": func() *peer {
				p := s.link(nil)
				p.clients = p.clients[:3]
				p.start(t)
				return p
			},
			"5 masters, quorum 3, longest TTL 30s": func() *peer { return s.peer(0, redlock.WithQuarantine(30*time.Second)) },
			"5 masters, quorum 3, longest TTL 2s":  func() *peer { return s.peer(0, rwlock.WithTTL(2*time.Second)) },
		} {
			p := refused()
			for range 2 {
				_, err := p.Lock(t.Context(), "x")
				require.ErrorIs(t, err, rwlock.ErrOption)
				require.ErrorContains(t, err, says)
				require.ErrorContains(t, err, "5 masters, quorum 3, longest TTL 10s")
				_, err = p.TryRLock(t.Context(), "x")
				require.ErrorIs(t, err, rwlock.ErrOption)
			}
		}
		s.peer(0, rwlock.WithTTL(time.Second), redlock.WithQuarantine(10*time.Second)).warm(t)
	})
}

// A locker that takes one of several masters for one that decides alone would not see the others' locks.
func TestOneOfSeveralMastersDoesNotDecideAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		s.peer(0).warm(t)
		alone, err := rwlock.New(s.link(nil).clients[1])
		require.NoError(t, err)
		defer func() { require.NoError(t, alone.Close()) }()
		for range 2 {
			_, err := alone.TryLock(t.Context(), "x")
			require.ErrorIs(t, err, rwlock.ErrOption)
			require.ErrorContains(t, err, "3 masters, quorum 2")
		}
	})
}

// What the servers are is found out at first use, and nothing is written before.
func TestUnfitServersAreRefused(t *testing.T) {
	a, b, c := testredis.Start(t), testredis.Start(t), testredis.Start(t)
	replica, node := testredis.Start(t), testredis.Start(t, "--cluster-enabled", "yes")
	replica.ReplicaOf(a)
	alias := testredis.NewProxy(t, b.Addr())
	for what, test := range map[string]struct {
		addrs []string
		says  []string
	}{
		"the same server twice": {
			[]string{a.Addr(), b.Addr(), alias.Addr()},
			[]string{"master 1 (" + b.Addr() + ")", "master 2 (" + alias.Addr() + ")", "the same server"},
		},
		"a replica": {
			[]string{replica.Addr(), b.Addr(), c.Addr()},
			[]string{"master 0 (" + replica.Addr() + ")", "replica"},
		},
		"a node of a cluster": {
			[]string{a.Addr(), node.Addr(), c.Addr()},
			[]string{"master 1 (" + node.Addr() + ")", "cluster"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			var clients []rueidis.Client
			for _, addr := range test.addrs {
				client, err := rueidis.NewClient(testredis.ClientOption(addr))
				require.NoError(t, err)
				t.Cleanup(client.Close)
				clients = append(clients, client)
			}
			locker, err := redlock.New(clients, testredis.Patience())
			require.NoError(t, err)
			defer locker.Close()
			for range 2 {
				_, err := locker.TryLock(t.Context(), "x")
				require.ErrorIs(t, err, rwlock.ErrOption)
				for _, says := range test.says {
					require.ErrorContains(t, err, says)
				}
			}
		})
	}
	for _, server := range []*testredis.Server{a, b, c} {
		keys, err := server.Command("DBSIZE")
		require.NoError(t, err)
		require.Equal(t, int64(0), keys, "nothing has been written to %s", server.Addr())
	}
	locker := dialled(t, []string{a.Addr(), b.Addr(), c.Addr()})
	lease, err := locker.TryLock(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}

// Dial finds some of it out before, wherever the server stands in the list.
func TestDialRefusesANodeOfACluster(t *testing.T) {
	a, b := testredis.Start(t), testredis.Start(t)
	node := testredis.Start(t, "--cluster-enabled", "yes")
	dead, gone := testredis.Start(t), testredis.Start(t)
	dead.Kill()
	gone.Kill()
	for _, addrs := range [][]string{
		{a.Addr(), b.Addr(), node.Addr()}, {node.Addr(), a.Addr(), b.Addr()}, {dead.Addr(), gone.Addr(), node.Addr()},
	} {
		clients, err := redlock.Dial(addrs, rueidis.ClientOption{})
		require.Empty(t, clients)
		require.ErrorIs(t, err, rwlock.ErrOption)
		require.ErrorContains(t, err, node.Addr())
		require.NotErrorIs(t, err, rwlock.ErrNoQuorum)
	}
}

// dialled returns a locker over the servers at these addresses, which it closes with the test.
func dialled(t *testing.T, addrs []string, opts ...rwlock.Option) *rwlock.Locker {
	t.Helper()
	clients, err := redlock.Dial(addrs, rueidis.ClientOption{})
	require.NoError(t, err)
	locker, err := redlock.New(clients, append(opts, testredis.Patience())...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, locker.Close())
		for _, c := range clients {
			c.Close()
		}
	})
	return locker
}

// Dial needs a majority to be up; the others join when they are back.
func TestDialWithServersDown(t *testing.T) {
	t.Parallel()
	var servers []*testredis.Server
	var addrs []string
	for range 3 {
		server := testredis.Start(t)
		servers = append(servers, server)
		addrs = append(addrs, server.Addr())
	}
	servers[0].Kill()
	locker := dialled(t, addrs, rwlock.WithTTL(5*time.Second))
	hold := func() {
		lease, err := locker.Lock(soon(t, time.Minute), "x")
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	hold() // a new set of which not all are there waits for the quarantine
	servers[0].Restart()
	hold()
	servers[1].Kill()
	hold() // the one that was down has joined
	servers[2].Kill()

	_, err := redlock.Dial(addrs, rueidis.ClientOption{})
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	var quorum *rwlock.QuorumError
	require.ErrorAs(t, err, &quorum)
	require.Equal(t, 2, quorum.Need)
	require.Equal(t, 1, quorum.Got)
	require.Len(t, quorum.Nodes, 2)
	for i, node := range quorum.Nodes {
		require.Equal(t, i+1, node.Index)
		require.Equal(t, addrs[i+1], node.Addr)
		require.ErrorContains(t, node.Err, "connection refused")
	}
}
