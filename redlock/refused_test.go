package redlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// ofGroup is the client of a Sentinel group.
type ofGroup struct{ rueidis.Client }

func (ofGroup) Mode() rueidis.ClientMode { return rueidis.ClientModeSentinel }

// What can be seen without asking is refused by New.
func TestNewRefuses(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		c := w.Connect(testkit.Net{}).Clients
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
			"a Sentinel group":      {[]rueidis.Client{c[0], c[1], ofGroup{c[2]}}, nil, "of a Sentinel group"},
			"one client twice":      {[]rueidis.Client{c[0], c[1], c[0]}, nil, "masters 0 and 2 are the same client"},
			"no patience":           {c, []rwlock.Option{redlock.WithNodeTimeout(0)}, "WithNodeTimeout"},
			"patience beyond TTL":   {c, []rwlock.Option{redlock.WithNodeTimeout(time.Minute)}, "below the TTL of 10s"},
			"negative drift":        {c, []rwlock.Option{redlock.WithDrift(-0.1)}, "WithDrift"},
			"drift of half":         {c, []rwlock.Option{redlock.WithDrift(0.5)}, "WithDrift"},
			"no quarantine":         {c, []rwlock.Option{redlock.WithQuarantine(0)}, "WithQuarantine"},
			"quarantine within TTL": {c, []rwlock.Option{redlock.WithQuarantine(time.Second)}, "not be below the TTL of 10s"},
			"quarantine of days":    {c, []rwlock.Option{redlock.WithQuarantine(24*time.Hour + 1)}, "at most 24h0m0s"},
			"nil option":            {c, []rwlock.Option{nil}, "must not be nil"},
		} {
			_, err := redlock.New(test.masters, test.opts...)
			require.ErrorIs(w, err, rwlock.ErrOption, what)
			require.ErrorContains(w, err, test.says, what)
		}
	})
}

// All clients of a set count on nobody's leases outliving the quarantine.
func TestAcquisitionBeyondTheQuarantineIsRefused(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.ProcessAt(0, redlock.WithQuarantine(20*time.Second))
		p.Section("x", rwlock.WithTTL(20*time.Second))
		_, err := p.Lock(w.Ctx, "x", rwlock.WithTTL(20*time.Second+time.Millisecond))
		expect.Fails(w, err, rwlock.ErrOption, "must not exceed the quarantine of 20s, see WithQuarantine")
	})
}

// Clients that would count otherwise than those before them are refused, and told of both.
func TestOtherRulesAreRefused(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		w.ProcessAt(0).Section("warm-up")
		for says, refused := range map[string]func() *process{
			"3 masters, quorum 2, longest TTL 10s": func() *process {
				p := w.Connect(testkit.Net{})
				p.Clients = p.Clients[:3]
				return p.Start()
			},
			"5 masters, quorum 3, longest TTL 30s": func() *process {
				return w.ProcessAt(0, redlock.WithQuarantine(30*time.Second))
			},
			"5 masters, quorum 3, longest TTL 2s": func() *process { return w.ProcessAt(0, rwlock.WithTTL(2*time.Second)) },
		} {
			p := refused()
			for range 2 {
				expect.Fails(w, expect.ErrorOf(p.Lock(w.Ctx, "x")), rwlock.ErrOption, says, "5 masters, quorum 3, longest TTL 10s")
				require.ErrorIs(w, expect.ErrorOf(p.TryRLock(w.Ctx, "x")), rwlock.ErrOption)
			}
		}
		w.ProcessAt(0, rwlock.WithTTL(time.Second), redlock.WithQuarantine(10*time.Second)).Section("warm-up")
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
		"a replica": {[]string{replica.Addr(), b.Addr(), c.Addr()}, []string{"master 0 (" + replica.Addr() + ")", "replica"}},
		"a node of a cluster": {
			[]string{a.Addr(), node.Addr(), c.Addr()},
			[]string{"master 1 (" + node.Addr() + ")", "cluster"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			var clients []rueidis.Client
			for _, addr := range test.addrs {
				client := expect.NoError(rueidis.NewClient(testredis.ClientOption(addr))).In(t)
				t.Cleanup(client.Close)
				clients = append(clients, client)
			}
			locker := expect.NoError(redlock.New(clients, testredis.Silent(), testredis.Patience())).In(t)
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
		keys := expect.NoError(server.Command("DBSIZE")).In(t)
		require.Equal(t, int64(0), keys, "nothing has been written to %s", server.Addr())
	}
	locker := dialled(testkit.OnServers(t, a, b, c), []string{a.Addr(), b.Addr(), c.Addr()})
	require.NoError(t, expect.NoError(locker.TryLock(t.Context(), "x")).In(t).Release(t.Context()))
	require.NoError(t, locker.Close())
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
		expect.Fails(t, err, rwlock.ErrOption, node.Addr())
		require.NotErrorIs(t, err, rwlock.ErrNoQuorum)
	}
}

// Servers may be down when their clients are made. They join when they are back.
func TestOpenWithServersDown(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 3)
	servers := w.Servers
	addrs := []string{servers[0].Addr(), "redis://" + servers[1].Addr() + "/", servers[2].Addr()}
	for _, server := range servers {
		server.Kill()
	}
	opts := []rwlock.Option{testredis.Silent(), rwlock.WithTTL(5 * time.Second), testredis.Patience()}
	locker := expect.NoError(redlock.Open(addrs, opts...)).In(t)
	_, err := locker.TryLock(w.Soon(time.Minute), "x")
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	require.ErrorContains(t, err, "connection refused") // of the two that decide
	hold := func() { require.NoError(t, expect.NoError(locker.Lock(w.Soon(time.Minute), "x")).In(t).Release(w.Ctx)) }
	servers[1].Restart()
	servers[2].Restart()
	hold() // a new set of which not all are there waits for the quarantine
	servers[0].Restart()
	hold()
	servers[1].Kill()
	hold() // the one that was down has joined
	require.NoError(t, locker.Close())
}

// What New would refuse is refused before anybody is dialled: no client is left open.
func TestDialChecksTheAddressesFirst(t *testing.T) {
	var dialled atomic.Int64
	option := rueidis.ClientOption{
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			dialled.Add(1)
			return nil, errors.New("dialled")
		},
		InitAddress: []string{"base:6379"},
	}
	for rule, refused := range map[string][][]string{
		"odd number of at least 3": {nil, {"a:1"}, {"a:1", "b:1"}, {"a:1", "b:1", "c:1", "d:1"}},
		"the same":                 {{"a:1", "b:1", "a:1"}, {"a:1", "b:1", "c:1", "d:1", "d:1"}},
		"must not be empty":        {{"a:1", "", "c:1"}},
		"no URL":                   {{"a:1", "b:1", "redis://c:1"}},
		"must be host:port":        {{"127.0.0.1:1", "127.0.0.1:2", "localhost"}},
	} {
		for _, addrs := range refused {
			base := option
			if rule == "must be host:port" {
				base.DialCtxFn = nil
			}
			clients, err := redlock.Dial(addrs, base)
			require.Nil(t, clients)
			wrong, ok := err.(*rwlock.OptionError)
			require.True(t, ok, "%q: %v", addrs, err)
			require.Equal(t, "addrs", wrong.Option)
			require.Contains(t, wrong.Rule, rule)
		}
	}
	option.ReplicaOnly = true
	clients, err := redlock.Dial([]string{"a:1", "b:1", "c:1"}, option)
	require.Nil(t, clients)
	expect.Fails(t, err, "base.ReplicaOnly", rwlock.ErrOption)
	require.Zero(t, dialled.Load())
}

// Two clients whose lists of masters overlap in one would both have a quorum. The one that comes second is told.
func TestAnotherListOfMastersIsRefused(t *testing.T) {
	eachInFakeTime(t, 5, map[string][]int{
		"two replaced":              {2, 3, 4},
		"two replaced, other order": {3, 2, 4},
	}, func(w *world, second []int) {
		first := w.Part(0, 1, 2).Process(rwlock.WithTTL(3 * time.Second))
		lease := first.Take("x", rwlock.Write)
		other := w.Part(second...).Process(rwlock.WithTTL(3 * time.Second))
		for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(time.Second) {
			next, err := other.TryLock(w.Ctx, "x")
			require.Nil(w, next, "beside a lease of the first set")
			require.ErrorIs(w, err, rwlock.ErrOption)
			next, err = other.Lock(w.Soon(time.Second), "unrelated")
			require.Nil(w, next)
			require.ErrorIs(w, err, rwlock.ErrOption)
		}
		require.NoError(w, lease.Err(), "the first set is not troubled")
		w.Release(lease)
	})
}

// Two clients whose lists differ in one master have quorums that share none: they never hold a lock at once.
func TestReplacedMasterSplitsNoQuorum(t *testing.T) {
	const ttl = 3 * time.Second
	for _, wait := range []time.Duration{0, 3 * ttl} {
		runInFakeTime(t, "other at work for "+wait.String(), 4, func(w *world) {
			first, other := w.Part(0, 1, 2).Process(rwlock.WithTTL(ttl)), w.Part(0, 1, 3).Process(rwlock.WithTTL(ttl))
			first.Section("warm-up")
			for until := time.Now().Add(wait); !time.Now().After(until); time.Sleep(ttl / 10) {
				if lease, err := other.TryLock(w.Ctx, "unrelated"); err == nil {
					w.Release(lease)
				}
			}
			first.CutOff(1)
			other.CutOff(0)
			lease, err := first.Lock(w.Soon(ttl), "x")
			if err != nil {
				return // the first set is the one that is told
			}
			for until := time.Now().Add(4 * ttl); time.Now().Before(until) && lease.Err() == nil; {
				next, err := other.TryLock(w.Ctx, "x")
				if err == nil {
					require.Error(w, lease.Err(), "tokens %v and %v are held at once", lease.Token(), next.Token())
					w.Release(next)
				}
				time.Sleep(ttl / 10)
			}
			_ = lease.Release(w.Ctx)
		})
	}
}

// A client that counts on another TTL is refused also where the masters do not answer its first questions.
func TestNothingIsAcquiredBeforeTheMastersAreKnown(t *testing.T) {
	for _, ttl := range []time.Duration{30 * time.Second, time.Second} {
		for _, slow := range []time.Duration{300 * time.Millisecond, 1200 * time.Millisecond, 5 * time.Second} {
			runInFakeTime(t, "TTL "+ttl.String()+", slow for "+slow.String(), 3, func(w *world) {
				w.Process(rwlock.WithTTL(2 * time.Second)).Section("warm-up")
				odd := w.Process(rwlock.WithTTL(ttl))
				for _, link := range odd.Links {
					link.Hold(testredis.Both)
				}
				time.AfterFunc(slow, func() { odd.Restore(0, 1, 2) })
				for range 3 {
					lease, err := odd.Lock(w.Soon(10*time.Second), "x")
					require.Nil(w, lease)
					require.ErrorIs(w, err, rwlock.ErrOption)
				}
			})
		}
	}
}

// How a fleet gets another master or another TTL: all clients stop, the key PREFIX:master is deleted on every master
// that stays, and the clients start with the new settings. Tokens go on where they were.
func TestFleetIsChangedByTheProcedure(t *testing.T) {
	inFakeTime(t, 4, func(w *world) {
		const ttl = 3 * time.Second
		old := w.Part(0, 1, 2).Process(rwlock.WithTTL(ttl))
		lease := old.Take("x", rwlock.Write)
		require.NoError(w, old.Close())
		refused := w.Part(0, 1, 3).Process(rwlock.WithTTL(10 * time.Second))
		require.ErrorIs(w, expect.ErrorOf(refused.TryLock(w.Ctx, "x")), rwlock.ErrOption, "the procedure was not followed")
		require.NoError(w, refused.Close())

		for _, i := range []int{0, 1} {
			w.Minis[i].Miniredis().Del("fencelock:master")
		}
		changed := w.Part(0, 1, 3).Process(rwlock.WithTTL(10 * time.Second))
		begun := time.Now()
		next := changed.Acquire(w.Soon(time.Minute), "x", rwlock.Write).Granted()
		require.InDelta(w, 10, time.Since(begun).Seconds(), 1, "the new masters abstain for the new TTL")
		require.Greater(w, next.Token(), lease.Token())
		w.Release(next)
	})
}
