package main

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
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

// queue has an acquisition wait until the test ends.
func queue(t *testing.T, l *rwlock.Locker, name string, opts ...rwlock.LockOption) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = l.Lock(ctx, name, opts...)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	untilSeen(t, l, name, func(s rwlock.State) bool { return len(s.Waiters) > 0 })
}

// untilSeen waits until the locker sees the lock so.
func untilSeen(t *testing.T, l *rwlock.Locker, name string, so func(rwlock.State) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		state, err := l.Inspect(t.Context(), name)
		return err == nil && so(state)
	}, testkit.Patience, time.Millisecond)
}

func hold(t *testing.T, l *rwlock.Locker, name string, opts ...rwlock.LockOption) *rwlock.Lease {
	t.Helper()
	return expect.NoError(l.Lock(t.Context(), name, opts...)).In(t)
}

func TestOneRedis(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	app := application(t, server.Option())
	orders := hold(t, app, "orders", rwlock.WithMeta("web-1"))
	queue(t, app, "orders", rwlock.WithMeta("web-2"))
	expect.NoError(app.RLock(t.Context(), "report", rwlock.WithMeta("\x1b[31mred\ttab"))).In(t)
	free := hold(t, app, "free")
	require.NoError(t, free.Release(t.Context()))
	at := "REDIS_URL=redis://" + server.Addr()

	all := exits(t, statusOK, at, "list", patience)
	require.Regexp(t, `(?m)^NAME +MODE +HOLDER +HELD +LEFT +TOKEN +WAITING +LONGEST$`, all.out)
	require.Regexp(t, `(?m)^orders +write +web-1 +\S+ +(59m|1h)\S+ +`+orders.Token().String()+` +1 +\S+$`, all.out)
	require.Regexp(t, `(?m)^report +read +"\\x1b\[31mred\\ttab" .* - +-$`, all.out)
	require.Regexp(t, `(?m)^2 locks, 1 waiting, the oldest held for \S+$`, all.out)
	require.Equal(t, 4, strings.Count(all.out, "\n"))

	for _, c := range []struct {
		flags, contains, lacks string
	}{
		{"-prefix or", "orders", "report"},
		{"-prefix *", "", "orders"},
		{"-waiting", "orders", "report"},
		{"-older-than 1h", "", "orders"},
		{"-older-than 1ns", "orders", "nothing"},
		{"-free", "free", "nothing"},
		{"-keys other", "", "orders"},
		{"-db 1", "", "orders"},
	} {
		got := exits(t, statusOK, append([]string{at, "list", patience}, strings.Fields(c.flags)...)...)
		require.Contains(t, got.out, c.contains, c.flags)
		require.NotContains(t, got.out, c.lacks, c.flags)
	}

	got := fencelock(t, "list", "-json", "-prefix", "orders", "-addr", server.Addr(), patience)
	var state jsonState
	require.NoError(t, json.Unmarshal([]byte(got.out), &state))
	require.Equal(t, "write", state.Mode)
	require.Equal(t, orders.Token(), state.Token)
	require.Contains(t, got.out, `"token":"`+orders.Token().String()+
		`","broken":false,"ended":false,"detached":false,"held_ms":`)
	require.Equal(t, "web-1", state.Holders[0].Meta)
	require.Equal(t, "web-2", state.Waiters[0].Meta)

	got = exits(t, statusOK, at, "inspect", "orders", patience)
	require.Regexp(t, `^orders: held for write by web-1 since \S+, 1 waits, token `+orders.Token().String()+"\n", got.out)
	require.NotContains(t, got.out, "OWNER")
	require.NotContains(t, got.out, "NESTED")
	require.Contains(t, got.out, state.Holders[0].Hold)
	require.Contains(t, got.out, state.Waiters[0].Hold)
	require.Contains(t, exits(t, statusNo, at, "inspect", patience, "free", "-json").out, `"holders":[]`)
	got = exits(t, statusNo, at, "inspect", "never", patience)
	require.Contains(t, got.errs, `under the keys "fencelock:*" in database 0 of `+server.Addr()+" (-keys, -db, -addr)")
	for flags, says := range map[string]string{
		"-keys other -db 1":  `no lock is in use under the keys "other:*" in database 1 of ` + server.Addr(),
		"-prefix x":          `no lock whose name begins with "x" is in use under the keys "fencelock:*"`,
		"-older-than 1h":     `2 locks are in use, but none is such a lock, under`,
		"-waiting -prefix r": `1 lock is in use, but it is not such a lock, under`,
	} {
		got = exits(t, statusOK, append([]string{at, "list", patience}, strings.Fields(flags)...)...)
		require.Contains(t, got.errs, says)
	}
}

// Each row has the token of its own hold, by which break finds it, and says whether the hold is broken.
func TestListOfReaders(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	app := application(t, server.Option())
	var tokens []string
	for _, meta := range []string{"first", "second"} {
		reader := expect.NoError(app.RLock(t.Context(), "report", rwlock.WithMeta(meta))).In(t)
		tokens = append(tokens, reader.Token().String())
	}
	list := func() string { return exits(t, statusOK, "list", "-addr", server.Addr(), patience).out }
	require.NotEqual(t, tokens[0], tokens[1])
	require.Regexp(t, `(?m)^report +read +first +\S+ +\S+ +`+tokens[0]+` +-`, list())
	require.Regexp(t, `(?m)^report +read +second +\S+ +\S+ +`+tokens[1]+` +-`, list())
	breakForAMoment(t, app, "report", 0)
	require.Regexp(t, `(?m)^report +read +first +\S+ +\S+ +`+tokens[0]+`, broken +-`, list())
	require.Regexp(t, `(?m)^report +read +second +\S+ +\S+ +`+tokens[1]+` +-`, list())
}

// breakForAMoment breaks the i-th holder of a process that hears nothing, and gives up the wait.
func breakForAMoment(t *testing.T, l *rwlock.Locker, name string, i int) {
	t.Helper()
	state := expect.NoError(l.Inspect(t.Context(), name)).In(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Break(ctx, name, state.Holders[i].Hold, "stuck") }()
	untilSeen(t, l, name, func(s rwlock.State) bool { return s.Holders[i].Broken })
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestWatch(t *testing.T) {
	t.Parallel()
	server := testredis.StartBinary(t, binary(t))
	app := application(t, server.Option())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs output
	ended := make(chan int, 1)
	args := []string{"watch", "orders", "-every", "1ms", "-addr", server.Addr(), patience}
	go func() { ended <- run(ctx, args, func(string) string { return "" }, &out, &errs) }()
	shows := func(text string) {
		require.Eventually(t, func() bool { return strings.Contains(out.String(), text) }, testkit.Patience, time.Millisecond)
	}
	shows("free     last token 0")
	first := hold(t, app, "orders", rwlock.WithMeta("web-1"))
	shows("holds    write  web-1")
	queue(t, app, "orders", rwlock.WithMeta("web-2"))
	shows("waits    write  web-2")
	require.NoError(t, first.Release(t.Context()))
	shows("gone     write  web-1")
	shows("holds    write  web-2")
	server.Kill()
	require.Eventually(t, func() bool { return errs.String() != "" }, testkit.Patience, time.Millisecond)
	cancel()
	<-ended
	require.Equal(t, 5, strings.Count(out.String(), "\n"), out.String())

	exits(t, statusUsage, "watch", "orders", "-every", "0s")
}

// A reader's line has its own token, and a hold whose time is over is told from one that was given back.
func TestWatchOfReaders(t *testing.T) {
	var out, errs output
	v := viewer{s: &session{out: &out, errs: &errs}}
	held := rwlock.State{Token: 9, Mode: rwlock.Read, Holders: []rwlock.Holder{
		{Hold: "A", Meta: "first", Mode: rwlock.Read, Token: 7, Remaining: time.Second},
		{Hold: "B", Meta: "second", Mode: rwlock.Read, Token: 9, Remaining: time.Hour},
	}}
	now := time.Now()
	require.NoError(t, v.show(held, nil, now.Add(-2*time.Second)))
	held.Holders = slices.Clone(held.Holders)
	held.Holders[0].Broken, held.Holders[0].BrokenBy, held.Holders[0].BrokenWhy = true, "ann", "stuck"
	require.NoError(t, v.show(held, nil, now.Add(-time.Second)))
	require.NoError(t, v.show(rwlock.State{Token: 9}, nil, now))
	require.Empty(t, errs.String())
	var lines []string
	for line := range strings.Lines(out.String()) {
		_, change, _ := strings.Cut(line, "  ")
		lines = append(lines, strings.TrimSpace(change))
	}
	require.Equal(t, []string{
		"holds    read  first  A  token 7, since 0s", "holds    read  second  B  token 9, since 0s",
		"broken   read  first  A  token 7, by ann: stuck, stands for 1s at most",
		"expired  read  first  A", "gone     read  second  B", "free     last token 9",
	}, lines)
}

func TestEveryDeployment(t *testing.T) {
	t.Parallel()
	testredis.Require(t)
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		s := testredis.StartSentinel(t, binary(t))
		hold(t, application(t, s.Option()), "orders")
		option := s.Option()
		at := "FENCELOCK_URL=redis-sentinel://" + strings.Join(option.InitAddress, ",") + "/" + option.Sentinel.MasterSet
		require.Contains(t, fencelock(t, at, "list", patience).out, "orders")
		got := fencelock(t, at, "doctor", patience)
		require.NotContains(t, got.out, "error", got.errs)
		require.Equal(t, 2, strings.Count(got.out, "replicas     127.0.0.1:"), got.out)
		got = fencelock(t, "list", patience, "-addr", option.InitAddress[0])
		require.Contains(t, got.errs, "is a sentinel\n-> add -sentinel and the name of the master\n")
		got = fencelock(t, "list", patience, "-addr", option.InitAddress[0], "-sentinel", "nothing")
		require.Contains(t, got.errs, "-> check the name in -sentinel")
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		c := testredis.StartCluster(t, binary(t), 1)
		app := application(t, c.Option())
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} { // on all nodes
			hold(t, app, name)
		}
		at := "REDIS_URL=redis-cluster://" + c.Nodes()[0].Addr()
		got := fencelock(t, at, "list", patience)
		require.Contains(t, got.out, "\n6 locks, 0 waiting", got.errs)
		got = fencelock(t, at, "doctor", patience)
		require.NotContains(t, got.out, "error", got.errs)
		require.Equal(t, 3, strings.Count(got.out, "messages     arrive"), got.out)
		require.Equal(t, 3, strings.Count(got.out, "replicas     127.0.0.1:"), got.out)
		got = exits(t, statusUsage, "doctor", patience, "-addr", c.Nodes()[0].Addr())
		require.Contains(t, got.errs, "is a node of a Cluster; -cluster needs a user that may run CLUSTER SLOTS")
		require.Contains(t, got.errs, "-> add -cluster")
	})
}

// startThree starts the masters of a quorum.
func startThree(t *testing.T) (servers []*testredis.Server, addrs []string) {
	for range 3 {
		s := testredis.StartBinary(t, binary(t))
		servers, addrs = append(servers, s), append(addrs, s.Addr())
	}
	return servers, addrs
}

// applicationOver is application over the masters of a quorum.
func applicationOver(t *testing.T, addrs []string) *rwlock.Locker {
	t.Helper()
	var option rueidis.ClientOption
	option.Dialer.Timeout = testkit.Patience
	clients := expect.NoError(redlock.Dial(addrs, option)).In(t)
	for _, c := range clients {
		t.Cleanup(c.Close)
	}
	testkit.FoundLongAgo(t, clients, rwlock.WithTTL(time.Hour))
	app := expect.NoError(redlock.New(clients, rwlock.WithTTL(time.Hour), testredis.Silent(), testredis.Patience())).In(t)
	t.Cleanup(func() { _ = app.Close() })
	return app
}

func TestThreeMasters(t *testing.T) {
	t.Parallel()
	servers, addrs := startThree(t)
	at := "-addr=" + strings.Join(addrs, ",")
	require.Equal(t, 3, strings.Count(exits(t, statusOK, "doctor", at, patience).out, "not used for locks so far"))

	hold(t, applicationOver(t, addrs), "orders", rwlock.WithMeta("web-1"))
	got := exits(t, statusOK, "doctor", at, patience)
	require.Regexp(t, `(?m)^ok +\S+ and \S+ +clock `, got.out)
	require.Contains(t, got.out, "in seat ")

	servers[1].Kill()
	got = exits(t, statusFailed, "list", at, patience)
	require.Contains(t, got.out, "web-1", "the others show it")
	require.Contains(t, got.errs, addrs[1])
	require.Regexp(t, `(?m)^`+addrs[1]+` .*refused`, exits(t, statusOK, "inspect", "orders", at, patience).out)
	got = exits(t, statusFailed, "doctor", at, patience)
	require.Regexp(t, `(?m)^error +`+addrs[1]+` +connection .*refused`, got.out)

	servers[1].Restart()
	got = exits(t, statusNo, "doctor", at, patience)
	require.Regexp(t, `(?m)^warning +`+addrs[1]+` +vote .*lost its data`, got.out)

	commandOn(t, servers[2], "HSET", "fencelock:master", "set", "other")
	got = exits(t, statusFailed, "doctor", at, patience)
	require.Regexp(t, `(?m)^error +`+addrs[2]+` +vote .*another set`, got.out)
}

// A master whose clock was once ahead keeps a counter that is ahead, and doctor names it with the lock.
func TestDoctorFindsACounterAheadOfTheClock(t *testing.T) {
	t.Parallel()
	servers, addrs := startThree(t)
	app := applicationOver(t, addrs)
	held := hold(t, app, "orders")
	at := "REDIS_URL=redis://" + strings.Join(addrs, ",")
	require.NotContains(t, fencelock(t, at, "doctor", patience).out, "counter")
	later := strconv.FormatInt(time.Now().Add(30*24*time.Hour).UnixMicro(), 10)
	before := expect.NoError(servers[1].Command("HGET", "fencelock:{orders}", "w")).In(t).(string)
	commandOn(t, servers[1], "HSET", "fencelock:{orders}", "w", testkit.CounterIn(before, later))
	got := fencelock(t, at, "doctor", patience)
	require.Regexp(t, `warning +`+addrs[1]+` +counter +of lock orders is 7\d\dh\S+ ahead of this server's clock`, got.out)
	require.NotRegexp(t, `(`+addrs[0]+`|`+addrs[2]+`) +counter`, got.out)
	require.NoError(t, held.Release(t.Context()))
}
