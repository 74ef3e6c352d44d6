package rwlock_test

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

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
				if kind == "Valkey" {
					testredis.NeedAll(t, "another kind of server")
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
	option := d.option
	option.Dialer.Timeout = testkit.Patience // on a busy machine a second is short
	locker := testkit.Dial(t, "", option, append(opts, rwlock.WithTTL(ttl), testredis.Patience())...)
	return locker
}

const aclTTL = 10 * time.Second

// useAll does what a lock can do: wait, hand over, renew, inspect, nest.
func useAll(t *testing.T, first, second *rwlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	held, err := first.Lock(ctx, "orders")
	require.NoError(t, err)
	require.NoError(t, held.Renew(ctx))
	_, err = second.TryRLock(ctx, "orders")
	require.ErrorIs(t, err, rwlock.ErrNotAcquired)
	waiting := make(chan error, 1)
	go func() {
		read, err := second.RLock(ctx, "orders")
		if err == nil {
			err = read.Release(ctx)
		}
		waiting <- err
	}()
	require.Eventually(t, func() bool {
		state, err := first.Inspect(ctx, "orders")
		require.NoError(t, err)
		return len(state.Waiters) == 1
	}, testkit.Patience, time.Millisecond)
	require.NoError(t, held.Release(ctx))
	require.NoError(t, <-waiting)

	owned := reentrant.WithOwner(ctx)
	owner, _ := reentrant.OwnerFrom(owned)
	outer, err := reentrant.New(first).Lock(owned, "nested")
	require.NoError(t, err)
	joined, err := reentrant.New(second).Lock(reentrant.AsOwner(ctx, owner), "nested")
	require.NoError(t, err)
	require.NoError(t, joined.Release(ctx))
	require.NoError(t, outer.Release(ctx))
}
