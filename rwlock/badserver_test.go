package rwlock_test

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

func dial(t *testing.T, addr string, base rueidis.ClientOption) rueidis.Client {
	t.Helper()
	client := expect.NoError(rwlock.Dial(addr, base)).In(t)
	t.Cleanup(client.Close)
	return client
}

// take is one of the ways to take a lock.
type take = func(context.Context, string, ...rwlock.LockOption) (*rwlock.Lease, error)

// acquisitions are the ways to take a lock, by name.
func acquisitions(l *rwlock.Locker) map[string]take {
	return map[string]take{"Lock": l.Lock, "RLock": l.RLock, "TryLock": l.TryLock, "TryRLock": l.TryRLock}
}

// couldNotAsk checks that err says which lock, master and cause, and not that anybody holds the lock.
func couldNotAsk(t *testing.T, err error, addr, cause string) {
	t.Helper()
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	require.NotErrorIs(t, err, rwlock.ErrNotAcquired)
	require.NotErrorIs(t, err, rwlock.ErrConflict)
	failed := testkit.As[*rwlock.QuorumError](t, err)
	require.Equal(t, "orders", failed.Name)
	require.Equal(t, 1, failed.Need)
	require.Equal(t, 0, failed.Got)
	require.Len(t, failed.Nodes, 1)
	require.Equal(t, addr, failed.Nodes[0].Addr)
	require.ErrorContains(t, failed.Nodes[0].Err, cause)
	expect.Fails(t, err, `lock "orders"`, addr+": ")
}

// restrictedServer has users who may not do all that a lock needs.
func restrictedServer(t *testing.T) *testredis.Server {
	server := testredis.Start(t)
	for user, rules := range map[string]string{
		"noscripts": "on >secret ~* &* +@all -@scripting",
		"nokeys":    "on >secret ~other:* &* +@all",
		"nocommand": "on >secret ~* &* +@all -time",
	} {
		commandOn(t, server, append([]string{"ACL", "SETUSER", user}, strings.Fields(rules)...)...)
	}
	return server
}

func refusedAtOnce(t *testing.T, locker *rwlock.Locker, addr, cause string) {
	for how, take := range acquisitions(locker) {
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		err := expect.ErrorOf(take(ctx, "orders"))
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
		{"no scripts allowed", plain, as("noscripts"), "NOPERM"},
		{"no scripts allowed, advice", plain, as("noscripts"), "a server that runs Lua scripts"},
		{"no scripts", without, rueidis.ClientOption{}, "a server that runs Lua scripts"},
		{"no keys allowed", plain, as("nokeys"), "NOPERM"},
		{"no such database", plain, rueidis.ClientOption{SelectDB: 99}, "DB index is out of range"},
		{"a command not allowed", plain, as("nocommand"), "can't run this command"},
	} {
		t.Run(c.name, func(t *testing.T) {
			locker := testkit.Dial(t, c.server.Addr(), c.base)
			refusedAtOnce(t, locker, c.server.Addr(), c.cause)
			require.NoError(t, locker.Close())
			onlyTokensOn(t, plain)
		})
	}
}

// The advice has the form of URL that the server wants.
func TestAdviceForAURL(t *testing.T) {
	testredis.Require(t)
	node := testredis.StartBinary(t, redisBinary(t), "--cluster-enabled", "yes").Addr()
	open, closed := testredis.Start(t).Addr(), testredis.Start(t, "--requirepass", "s3cret").Addr()
	const passwordAlone = "or redis://:password@host:port where there is only a password"
	for url, advice := range map[string]string{
		"redis://" + closed:               passwordAlone,
		"redis://s3cret@" + closed:        passwordAlone, // without the colon it is a user
		"redis://:wrong@" + closed:        passwordAlone,
		"redis://user:s3cret@" + closed:   passwordAlone,
		"redis://" + open + "/99":         "the server has fewer databases: choose a smaller number",
		"redis://" + node + "/1":          "the server is a node of a Cluster, which has database 0 alone",
		"redis://:s3cret@" + closed + "/": "",
	} {
		locker := expect.NoError(rwlock.Open(url, testredis.Silent())).In(t)
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		lease, err := locker.Lock(ctx, "orders")
		require.NoError(t, ctx.Err(), "%s waited for the end of its context", url)
		cancel()
		if advice == "" {
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		} else {
			expect.Fails(t, err, rwlock.ErrNoQuorum, advice)
			require.NotContains(t, err.Error(), "s3cret")
		}
		require.NoError(t, locker.Close())
	}
}

// A replica may be a former master whose address leads to another server by now, so the client connects anew and Lock
// asks again. Each error names the replica.
func TestAReplicaThatStaysOne(t *testing.T) {
	testredis.Require(t)
	master, replica := testredis.Start(t), testredis.Start(t)
	replica.ReplicaOf(master)
	locker := testkit.Dial(t, replica.Addr(), rueidis.ClientOption{})
	for how, take := range acquisitions(locker) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := expect.ErrorOf(take(ctx, "orders"))
		couldNotAsk(t, err, replica.Addr(), "READONLY")
		require.ErrorContains(t, err, "the server is a replica; locks need its master", how)
		cancel()
	}
	require.ErrorContains(t, locker.Ping(t.Context()), "the server is a replica; locks need its master")
	require.NoError(t, locker.Close())
	onlyTokensOn(t, master)

	// Nothing can have a client that is not from Dial connect anew.
	other := expect.NoError(rwlock.New(replica.Client(t))).In(t)
	refusedAtOnce(t, other, replica.Addr(), "READONLY")
	require.NoError(t, other.Close())
}

// onlyTokensOn fails the test if anything of a lock but its token is on the server.
func onlyTokensOn(t *testing.T, server *testredis.Server) {
	t.Helper()
	keys := expect.NoError(server.Command("KEYS", "*")).In(t)
	for _, key := range keys.([]any) {
		if name := key.(string); !testkit.IsMarker(name) {
			require.Regexp(t, `\}$`, name, "keys left: %v", keys)
			require.Subset(t, []any{"w", "d", "b", "s"}, expect.NoError(server.Command("HKEYS", name)).In(t), "%s", name)
		}
	}
}

func commandOn(t *testing.T, server *testredis.Server, args ...string) any {
	t.Helper()
	return expect.NoError(server.Command(args...)).In(t, args)
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
		for _, field := range expect.NoError(g.old.Miniredis().HKeys(key)).In(t) {
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
		held := expect.NoError(locker.Lock(t.Context(), "n")).In(t)
		g.replicate(t)
		require.NoError(t, held.Release(t.Context()), "the old master has confirmed it")
		g.failOver()
		begun := time.Now()
		again := expect.NoError(locker.Lock(t.Context(), "n")).In(t)
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
		held := expect.NoError(lockerOf(t, g.client).Lock(t.Context(), "n")).In(t)
		g.client.now.Store(0)
		held0 := expect.NoError(locker.Lock(t.Context(), "n")).In(t)
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

// aclLine returns a line of SECURITY.md.
func aclLine(t *testing.T, heading string) []string { return testkit.ACLLine(t, "..", heading) }

// The headings of SECURITY.md under which the lines are.
const (
	aclOne      = testkit.ACLEachServer
	aclReplica  = "Behind Sentinel, in addition"
	aclSentinel = "and on each sentinel"
	aclCluster  = "In a Cluster, in addition"
)

var calledByScript = regexp.MustCompile(`call\('([A-Z]+)'|'(PUBLISH)'`)

// The lines allow what the scripts and the client call, and nothing else.
func TestACLNamesTheCommandsOfTheScripts(t *testing.T) {
	needed := map[string]bool{"+@connection": true, "+eval": true, "+evalsha": true, "+subscribe": true}
	for _, cleaning := range []string{"+unsubscribe", "+punsubscribe", "+sunsubscribe", "+discard"} {
		needed[cleaning] = true // of a connection that the client keeps for another use
	}
	for _, source := range scripts.All() {
		for _, match := range calledByScript.FindAllStringSubmatch(source, -1) {
			needed["+"+strings.ToLower(match[1]+match[2])] = true
		}
	}
	needed["+info"] = true // also of the client, which asks for the eviction policy
	allowed := func(line []string) map[string]bool {
		rules := map[string]bool{}
		for _, rule := range line {
			if strings.HasPrefix(rule, "+") {
				rules[rule] = true
			}
		}
		return rules
	}
	for heading, more := range map[string][]string{
		aclOne: nil, aclReplica: {"+role"},
		aclCluster: {"+ssubscribe", "+spublish", "+cluster|slots", "+cluster|shards"},
	} {
		expected := maps.Clone(needed)
		for _, rule := range more {
			expected[rule] = true
		}
		require.Equal(t, expected, allowed(aclLine(t, heading)), heading)
	}
}

// The users of SECURITY.md may do all that a lock needs, also after a failover: no command, key or channel is refused.
func TestACLSuffices(t *testing.T) {
	t.Parallel() // groups take their time
	for name, start := range map[string]func(t *testing.T, binary string) aclDeployment{
		"one Redis": aclOfOneRedis, "Sentinel": aclOfSentinel, "Cluster": aclOfCluster,
	} {
		for kind, find := range map[string]func(testing.TB) string{"Redis": redisBinary, "Valkey": testredis.Valkey} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				if kind == "Valkey" || name == "Sentinel" {
					testredis.NeedAll(t, "another kind of server, or a failover")
				}
				d := start(t, find(t))
				d.option.Username, d.option.Password = "locks", "secret"
				first, second := d.locker(t, aclTTL), d.locker(t, aclTTL)
				useAll(t, first, second)
				if d.failOver != nil {
					strict := d.locker(t, 10*time.Second, rwlock.WithReplicas(1, 3*time.Second))
					require.NoError(t, strict.Do(t.Context(), "orders", func(context.Context) error { return nil }))
					d.failOver()
					useAll(t, first, second)
				}
				for _, server := range d.servers {
					require.Empty(t, commandOn(t, server, "ACL", "LOG"), "refused on %s", server.Addr())
				}
			})
		}
	}
}

// aclDeployment is where every client is the documented user.
type aclDeployment struct {
	option   rueidis.ClientOption
	servers  []*testredis.Server
	failOver func()
}

func aclOfOneRedis(t *testing.T, binary string) aclDeployment {
	server := testredis.StartBinary(t, binary)
	commandOn(t, server, aclLine(t, aclOne)...)
	option := rueidis.ClientOption{InitAddress: []string{server.Addr()}, ForceSingleClient: true}
	return aclDeployment{option: option, servers: []*testredis.Server{server}}
}

func aclOfSentinel(t *testing.T, binary string) aclDeployment {
	s := testredis.StartSentinel(t, binary)
	for _, node := range s.Nodes() {
		commandOn(t, node, aclLine(t, aclReplica)...)
	}
	for _, sentinel := range s.Sentinels() {
		commandOn(t, sentinel, aclLine(t, aclSentinel)...)
	}
	option := s.Option()
	option.Sentinel.Username, option.Sentinel.Password = "locks", "secret"
	return aclDeployment{
		option: option, servers: slices.Concat(s.Nodes(), s.Sentinels()), failOver: func() { s.Failover() },
	}
}

func aclOfCluster(t *testing.T, binary string) aclDeployment {
	c := testredis.StartCluster(t, binary, 1)
	for _, node := range c.Nodes() {
		commandOn(t, node, aclLine(t, aclCluster)...)
	}
	failOver := func() { c.Failover(c.Owner(c.Slot("fencelock:{orders}"))) }
	return aclDeployment{option: c.Option(), servers: c.Nodes(), failOver: failOver}
}

func (d *aclDeployment) locker(t *testing.T, ttl time.Duration, opts ...rwlock.Option) *rwlock.Locker {
	t.Helper()
	return testkit.Dial(t, "", d.option, append(opts, rwlock.WithTTL(ttl))...)
}

const aclTTL = 10 * time.Second

// useAll does what a lock can do: wait, hand over, renew, inspect, nest.
func useAll(t *testing.T, first, second *rwlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	held := expect.NoError(first.Lock(ctx, "orders")).In(t)
	// After a failover, what asks once may do so on a connection that is just given up.
	soon := func(done func() bool) { require.Eventually(t, done, testkit.Patience, time.Millisecond) }
	soon(func() bool { return held.Renew(ctx) == nil })
	soon(func() bool { return errors.Is(expect.ErrorOf(second.TryRLock(ctx, "orders")), rwlock.ErrNotAcquired) })
	waiting := inTurn(ctx, second.RLock, "orders")
	soon(func() bool {
		state, err := first.Inspect(ctx, "orders")
		return err == nil && len(state.Waiters) == 1
	})
	require.NoError(t, held.Release(ctx))
	require.NoError(t, <-waiting)

	owned := reentrant.WithOwner(ctx)
	owner, _ := reentrant.OwnerFrom(owned)
	outer := expect.NoError(reentrant.New(first).Lock(owned, "nested")).In(t)
	require.NoError(t, giveBack(reentrant.New(second).Lock(reentrant.AsOwner(ctx, owner), "nested")))
	require.NoError(t, outer.Release(ctx))
}

// A client of another layout than that on the server is told both numbers, and has sent nothing for a lock.
func TestAnotherLayoutIsRefused(t *testing.T) {
	everywhere(t, func(w *world) {
		w.FlushAll()
		const marker = "fencelock:master"
		w.Command("HSET", marker, "layout", "7")
		p := w.Process()
		for how, take := range acquisitions(p.Locker) {
			_, err := take(w.Ctx, "n")
			_ = testkit.As[*rwlock.OptionError](w, err, how)
			expect.Fails(w, err, rwlock.ErrOption, "keeps its locks in layout 7, this client in layout 3")
		}
		require.Equal(w, []string{marker}, w.Keys())
		require.Equal(w, "7", w.Command("HGET", marker, "layout"))
	})
}
