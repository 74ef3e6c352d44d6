package rwlock_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func dial(t *testing.T, addr string, base rueidis.ClientOption) rueidis.Client {
	t.Helper()
	client, err := rwlock.Dial(addr, base)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// take is one of the ways to take a lock.
type take = func(context.Context, string, ...rwlock.LockOption) (*rwlock.Lease, error)

// acquisitions are the ways to take a lock, by name.
func acquisitions(l *rwlock.Locker) map[string]take {
	return map[string]take{
		"Lock": l.Lock, "RLock": l.RLock, "TryLock": l.TryLock, "TryRLock": l.TryRLock,
	}
}

// couldNotAsk checks that err says which lock, which master and which cause, and that it does not pretend that anybody
// holds the lock.
func couldNotAsk(t *testing.T, err error, addr, cause string) {
	t.Helper()
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	require.NotErrorIs(t, err, rwlock.ErrNotAcquired)
	require.NotErrorIs(t, err, rwlock.ErrConflict)
	var failed *rwlock.QuorumError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "orders", failed.Name)
	require.Equal(t, 1, failed.Need)
	require.Equal(t, 0, failed.Got)
	require.Len(t, failed.Nodes, 1)
	require.Equal(t, addr, failed.Nodes[0].Addr)
	require.ErrorContains(t, failed.Nodes[0].Err, cause)
	require.ErrorContains(t, err, `lock "orders"`)
	require.ErrorContains(t, err, addr+": ")
}

// restrictedServer has users who may not do all that a lock needs.
func restrictedServer(t *testing.T) *testredis.Server {
	server := testredis.Start(t)
	for user, rules := range map[string]string{
		"noscripts": "on >secret ~* &* +@all -@scripting",
		"nokeys":    "on >secret ~other:* &* +@all",
		"nocommand": "on >secret ~* &* +@all -time",
	} {
		_, err := server.Command(append([]string{"ACL", "SETUSER", user}, strings.Fields(rules)...)...)
		require.NoError(t, err)
	}
	return server
}

func refusedAtOnce(t *testing.T, locker *rwlock.Locker, addr, cause string) {
	for how, take := range acquisitions(locker) {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		lease, err := take(ctx, "orders")
		require.Nil(t, lease, how)
		couldNotAsk(t, err, addr, cause)
		require.NoError(t, ctx.Err(), "%s waited for the end of its context", how)
		require.False(t, rwlock.Indeterminate(err), "%s: a refusal is an answer", how)
		cancel()
	}
}

// A server that refuses, and will go on refusing, is reported at once: waiting for the context's end would hide it.
func TestServerRefusesForGood(t *testing.T) {
	testredis.Require(t)
	plain := restrictedServer(t)
	closed := testredis.Start(t, "--requirepass", "secret")
	without := testredis.Start(t, "--rename-command", "EVAL", "", "--rename-command", "EVALSHA", "")
	replica := testredis.Start(t)
	replica.ReplicaOf(plain)
	as := func(user string) rueidis.ClientOption {
		return rueidis.ClientOption{Username: user, Password: "secret"}
	}
	for _, c := range []struct {
		name   string
		server *testredis.Server
		base   rueidis.ClientOption
		cause  string
	}{
		{"no password", closed, rueidis.ClientOption{}, "NOAUTH"},
		{"wrong password", closed, rueidis.ClientOption{Password: "guess"}, "WRONGPASS"},
		{"replica", replica, rueidis.ClientOption{}, "READONLY"},
		{"replica, advice", replica, rueidis.ClientOption{}, "the server is a replica"},
		{"no scripts allowed", plain, as("noscripts"), "NOPERM"},
		{"no scripts allowed, advice", plain, as("noscripts"), "a server that runs Lua scripts"},
		{"no scripts", without, rueidis.ClientOption{}, "a server that runs Lua scripts"},
		{"no keys allowed", plain, as("nokeys"), "NOPERM"},
		{"a command not allowed", plain, as("nocommand"), "can't run this command"},
	} {
		t.Run(c.name, func(t *testing.T) {
			locker := testkit.New(t, dial(t, c.server.Addr(), c.base))
			refusedAtOnce(t, locker, c.server.Addr(), c.cause)
			require.NoError(t, locker.Close())
			onlyTokensOn(t, plain)
		})
	}
}

// onlyTokensOn fails the test if anything of a lock but its token is on the server.
func onlyTokensOn(t *testing.T, server *testredis.Server) {
	t.Helper()
	keys, err := server.Command("KEYS", "*")
	require.NoError(t, err)
	for _, key := range keys.([]any) {
		if name := key.(string); !testkit.IsMarker(name) {
			require.Regexp(t, `\}$`, name, "keys left: %v", keys)
			fields, err := server.Command("HKEYS", name)
			require.NoError(t, err)
			require.Subset(t, []any{"t", "s"}, fields, "%s", name)
		}
	}
}

// A server that is out of memory may have room again: TryLock says what is wrong, Lock goes on asking and gets in.
func TestServerOutOfMemory(t *testing.T) {
	server := testredis.Start(t, "--maxmemory", "1kb")
	client := dial(t, server.Addr(), rueidis.ClientOption{})
	locker := testkit.New(t, client)

	passing(t, locker, server.Addr(), "OOM")
	onlyTokensOn(t, server)

	held := waitOut(t, locker, func() { commandOn(t, server, "CONFIG", "SET", "maxmemory", "0") })
	// Full again: what there is can be kept and given back.
	commandOn(t, server, "CONFIG", "SET", "maxmemory", "1kb")
	require.NoError(t, held.Renew(t.Context()))
	require.NoError(t, held.Release(t.Context()))
	left, err := locker.Inspect(t.Context(), "orders")
	require.NoError(t, err)
	require.Empty(t, left.Holders)
	require.Empty(t, left.Waiters) // but a tombstone may be there, of a request that was on its way when Lock gave up
}

// A server with too many clients says so and closes the connection: its words are the cause, not the end that follows.
// No request can have run there.
func TestServerWithTooManyClients(t *testing.T) {
	server := testredis.Start(t)
	commandOn(t, server, "CONFIG", "SET", "maxclients", "1") // the connection of this command
	for range 5 {
		locker, err := rwlock.New(dial(t, server.Addr(), rueidis.ClientOption{}))
		require.NoError(t, err)
		passing(t, locker, server.Addr(), "max number of clients reached")
		require.NoError(t, locker.Close(), "and at once: there is nothing to wait for")
	}
}

// A server that still reads its data from disk is not there yet.
func TestServerLoading(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--loading-process-events-interval-bytes", "1024", "--rdbcompression", "no")
	const keys, pause = 3000, 10 * time.Millisecond // between two keys it answers
	for i := range keys {
		commandOn(t, server, "SET", strconv.Itoa(i), strings.Repeat("v", 4096))
	}
	commandOn(t, server, "SAVE")
	slow := testredis.Start(t, "--loading-process-events-interval-bytes", "1024", "--key-load-delay",
		strconv.FormatInt(pause.Microseconds(), 10), "--dir", folderOf(t, server))
	client := dial(t, slow.Addr(), rueidis.ClientOption{})
	locker := testkit.New(t, client)

	passing(t, locker, slow.Addr(), "LOADING")
	lease := waitOut(t, locker, func() { commandOn(t, slow, "CONFIG", "SET", "key-load-delay", "0") })
	require.NoError(t, lease.Release(t.Context()))
}

func folderOf(t *testing.T, server *testredis.Server) string {
	t.Helper()
	reply := commandOn(t, server, "CONFIG", "GET", "dir")
	return reply.([]any)[1].(string)
}

func commandOn(t *testing.T, server *testredis.Server, args ...string) any {
	t.Helper()
	reply, err := server.Command(args...)
	require.NoError(t, err, "%v", args)
	return reply
}

// passing checks what a trouble looks like that may pass: the attempts fail at once, the others when their context
// ends.
func passing(t *testing.T, locker *rwlock.Locker, addr, cause string) {
	t.Helper()
	for _, try := range []take{locker.TryLock, locker.TryRLock} {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		_, err := try(ctx, "orders")
		couldNotAsk(t, err, addr, cause)
		require.NoError(t, ctx.Err(), "an attempt waited")
		require.False(t, rwlock.Indeterminate(err))
		cancel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // some answers come within it
	defer cancel()
	_, err := locker.Lock(ctx, "orders")
	couldNotAsk(t, err, addr, cause)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Error(t, ctx.Err(), "Lock did not wait") // and one of its requests may be on its way at the end
}

// waitOut starts Lock, ends the trouble, and returns the lease that comes of it.
func waitOut(t *testing.T, locker *rwlock.Locker, end func()) *rwlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	got := make(chan *rwlock.Lease)
	failed := make(chan error)
	go func() {
		if lease, err := locker.Lock(ctx, "orders"); err == nil {
			got <- lease
		} else {
			failed <- err
		}
	}()
	end()
	select {
	case lease := <-got:
		return lease
	case err := <-failed:
		require.NoError(t, err)
		return nil
	}
}

// Nobody listens there: said at once by an attempt, after the context's end by Lock; and since nothing can have been
// sent, nothing is left to be released.
func TestNobodyListens(t *testing.T) {
	const addr = "127.0.0.1:1" // a port that was free a moment ago may be another test's by now
	client := dial(t, addr, rueidis.ClientOption{})
	locker, err := rwlock.New(client, rwlock.WithTTL(time.Hour), rwlock.WithReleaseTimeout(time.Hour))
	require.NoError(t, err)
	passing(t, locker, addr, "connection refused")
	require.NoError(t, locker.Close(), "and at once: there is nothing to wait for")
}

// group is a master and the server that takes its place, with a client that follows.
type group struct {
	old, next *testredis.Mini
	client    *failingOver
}

func newGroup(t *testing.T) *group {
	g := &group{old: testredis.NewMini(t), next: testredis.NewMini(t)}
	g.old.SetAddr("10.0.0.1:6379")
	g.next.SetAddr("10.0.0.2:6379")
	g.client = newFailingOver(t, rueidis.ClientModeSentinel, g.old.NewLink(), g.next.NewLink())
	return g
}

// replicate gives the next master what the old one has.
func (g *group) replicate(t *testing.T) {
	for _, key := range g.old.Miniredis().Keys() {
		require.Equal(t, "hash", g.old.Miniredis().Type(key), "the test is for these only")
		fields, err := g.old.Miniredis().HKeys(key)
		require.NoError(t, err)
		for _, field := range fields {
			g.next.Miniredis().HSet(key, field, g.old.Miniredis().HGet(key, field))
		}
	}
}

// failOver makes the client use the next master. The old one goes on as if it were one.
func (g *group) failOver() { g.client.now.Store(1) }

// What a replaced master, which has not noticed it, confirmed a moment ago is released on its successor too.
func TestAReleaseThatAReplacedMasterConfirmedIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		locker := lockerOf(t, g.client, rwlock.WithTTL(time.Hour))
		held, err := locker.Lock(t.Context(), "n")
		require.NoError(t, err)
		g.replicate(t)
		require.NoError(t, held.Release(t.Context()), "the old master has confirmed it")
		g.failOver()
		begun := time.Now()
		again, err := locker.Lock(t.Context(), "n")
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(begun), time.Second)
		time.Sleep(time.Minute)
		require.NoError(t, again.Err(), "what was repeated is over")
		require.NoError(t, again.Release(t.Context()))
	})
}

func TestSubscriptionsFollowTheMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		locker := lockerOf(t, g.client, rwlock.WithTTL(time.Hour))
		g.failOver()
		held, err := lockerOf(t, g.client).Lock(t.Context(), "n")
		require.NoError(t, err)
		g.client.now.Store(0)
		held0, err := locker.Lock(t.Context(), "n")
		require.NoError(t, err)
		var granted time.Time
		over := make(chan error, 1)
		go func() {
			lease, err := locker.Lock(context.Background(), "n")
			if granted = time.Now(); err == nil {
				err = lease.Release(context.Background())
			}
			over <- err
		}()
		time.Sleep(500 * time.Millisecond)
		require.Len(t, g.old.Miniredis().PubSubChannels("*"), 1)
		g.failOver()
		time.Sleep(500 * time.Millisecond)
		require.Empty(t, g.old.Miniredis().PubSubChannels("*"), "the old master lives on")
		require.Len(t, g.next.Miniredis().PubSubChannels("*"), 1)
		released := time.Now()
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-over)
		require.Equal(t, released, granted, "by a message")
		require.Error(t, held0.Release(t.Context()), "the next master has never had it")
	})
}
