//go:build unix

package testredis_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// onEachKind runs a test on Redis and on Valkey.
func onEachKind(t *testing.T, test func(t *testing.T, binary string)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel() // a failover is mostly waiting
		testredis.Require(t)
		test(t, testredis.Binaries()[0])
	})
	t.Run("valkey", func(t *testing.T) {
		t.Parallel()
		test(t, testredis.Valkey(t))
	})
}

// connect returns a client of the deployment, over a link of its own.
func connect(t *testing.T, d testredis.Deployment) (*testredis.Link, rueidis.Client) {
	t.Helper()
	link := testredis.NewLink(t, d.Option())
	option := link.Option()
	option.DisableCache = true
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return link, client
}

// reads checks that clients and the administrator see the same data, and that the link is the only way to it.
func reads(t *testing.T, d testredis.Deployment) {
	t.Helper()
	link, client := connect(t, d)
	for i := range 20 { // in a Cluster, on every master
		key := "k" + strconv.Itoa(i)
		require.NoError(t, client.Do(t.Context(), set(client, key, "v")).Error())
		got, err := d.Command("GET", key)
		require.NoError(t, err)
		require.Equal(t, "v", got)
	}
	require.Equal(t, 20, link.Calls("SET"))
	total := 0
	for _, master := range d.Masters() {
		require.Equal(t, "master", master.Info("replication")["role"])
		keys, err := master.Command("DBSIZE")
		require.NoError(t, err)
		require.NotZero(t, keys)
		total += int(keys.(int64))
	}
	require.Equal(t, 20, total)
	link.Refuse()
	link.Cut()
	require.Error(t, client.Do(within(t, time.Second), set(client, "k", "w")).Error())
}

// untilWritable returns when a client's SET succeeds.
func untilWritable(t *testing.T, client rueidis.Client, key string) {
	t.Helper()
	require.Eventually(t, func() bool {
		return client.Do(within(t, time.Second), set(client, key, "v")).Error() == nil
	}, time.Minute, 10*time.Millisecond)
}

func TestSentinel(t *testing.T) {
	onEachKind(t, func(t *testing.T, binary string) {
		s := testredis.StartSentinel(t, binary)
		require.Same(t, s.Nodes()[0], s.Master())
		reads(t, s)

		_, client := connect(t, s)
		second := s.Failover()
		require.NotSame(t, s.Nodes()[0], second)
		require.Same(t, second, s.Master())
		untilWritable(t, client, "after a failover")
		got, err := s.Command("GET", "k0")
		require.NoError(t, err)
		require.Equal(t, "v", got, "nothing is lost")

		s.WaitReady()
		s.DownAfter(500 * time.Millisecond)
		second.Kill()
		third := s.AwaitMaster(second)
		require.NotSame(t, second, third)
		untilWritable(t, client, "after a crash")
	})
}

// A failover that is given up, since no replica takes its promotion, is begun again.
func TestAFailoverThatIsGivenUp(t *testing.T) {
	onEachKind(t, func(t *testing.T, binary string) {
		s := testredis.StartSentinel(t, binary)
		old, sentinel := s.Master(), s.Sentinels()[0]
		_, err := sentinel.Command("SENTINEL", "SET", testredis.MasterSet, "FAILOVER-TIMEOUT", "1000")
		require.NoError(t, err)
		promotion := func(sign string) {
			for _, replica := range s.Nodes()[1:] {
				_, err := replica.Command("ACL", "SETUSER", "default", sign+"slaveof", sign+"replicaof")
				assert.NoError(t, err)
			}
		}
		refused := func() bool { // once for each failover
			for _, replica := range s.Nodes()[1:] {
				if log, _ := replica.Command("ACL", "LOG"); strings.Contains(fmt.Sprint(log), "slaveof") {
					return true
				}
			}
			return false
		}
		promotion("-")
		var operator sync.WaitGroup
		defer operator.Wait()
		operator.Go(func() {
			defer promotion("+")
			assert.Eventually(t, refused, 2*time.Minute, 5*time.Millisecond)
		})
		require.NotSame(t, old, s.Failover())
	})
}

func TestCluster(t *testing.T) {
	onEachKind(t, func(t *testing.T, binary string) {
		c := testredis.StartCluster(t, binary, 1)
		require.Len(t, c.Nodes(), 6)
		require.ElementsMatch(t, c.Nodes()[:3], c.Masters())
		reads(t, c)

		_, client := connect(t, c)
		owner := c.Owner(c.Slot("k0"))
		replica := c.ReplicaOf(owner)
		require.Same(t, replica, c.Failover(owner))
		require.Same(t, replica, c.Owner(c.Slot("k0")))
		require.Same(t, owner, c.ReplicaOf(replica))
		require.Len(t, c.Masters(), 3)
		untilWritable(t, client, "k0")

		c.NodeTimeout(500 * time.Millisecond)
		replica.Kill()
		require.Same(t, owner, c.AwaitTakeover(replica))
		untilWritable(t, client, "k0")
		require.Len(t, c.Masters(), 3)

		replica.Restart()
		c.NodeTimeout(4 * time.Second) // with less a busy machine causes failovers that nobody has asked for
		c.WaitReady()
		require.Same(t, replica, c.Failover(owner))
		replica.Kill() // within 8 s of the election of the owner, which then counts those votes again
		require.Same(t, owner, c.AwaitTakeover(replica))
		untilWritable(t, client, "k0")
	})
}

func TestAMovingSlot(t *testing.T) {
	onEachKind(t, func(t *testing.T, binary string) {
		c := testredis.StartCluster(t, binary, 0)
		_, client := connect(t, c)
		const here, missing = "{a}here", "{a}missing"
		slot := c.Slot(here)
		from := c.Owner(slot)
		to := c.Another(from)
		require.NoError(t, client.Do(t.Context(), set(client, here, "v")).Error())

		move := c.BeginMove(slot, to)
		_, err := from.Command("MGET", here, missing)
		require.ErrorContains(t, err, "TRYAGAIN")
		_, err = from.Command("GET", missing)
		require.ErrorContains(t, err, "ASK "+strconv.Itoa(slot)+" "+to.Addr())
		_, err = to.Command("GET", here)
		require.ErrorContains(t, err, "MOVED "+strconv.Itoa(slot)+" "+from.Addr())
		require.Same(t, from, c.Owner(slot))

		move.Key(here)
		_, err = from.Command("GET", here)
		require.ErrorContains(t, err, "ASK ")
		move.End()
		require.Same(t, to, c.Owner(slot))
		got, err := client.Do(t.Context(), get(client, here)).ToString()
		require.NoError(t, err)
		require.Equal(t, "v", got)
	})
}

// What fails in a subtest does not end the test that has started the Cluster.
func TestAClusterForASubtest(t *testing.T) {
	testredis.Require(t)
	t.Parallel() // a new cluster takes its time
	c := testredis.StartCluster(t, testredis.Binaries()[0], 0)
	owner := c.Owner(0)
	require.Contains(t, failure(t, func(t testing.TB) { c.For(t).Failover(owner) }), "has no replica")
	require.Contains(t, failure(t, func(t testing.TB) { c.For(t).BeginMove(0, owner) }), "slot 0 cannot be moved")
	require.Contains(t, failure(t, func(t testing.TB) {
		c := c.For(t)
		move := c.BeginMove(0, c.Another(owner))
		owner.Kill()
		move.End()
	}), "CLUSTER GETKEYSINSLOT")
}

func TestTLS(t *testing.T) {
	onEachKind(t, func(t *testing.T, binary string) {
		s := testredis.StartTLS(t, binary)
		link, client := connect(t, s)
		require.NoError(t, client.Do(t.Context(), set(client, "k", "v")).Error())
		got, err := s.Command("GET", "k")
		require.NoError(t, err)
		require.Equal(t, "v", got)
		require.Equal(t, 1, link.Calls("SET"), "the link sees what is said")

		direct, err := rueidis.NewClient(s.Option())
		require.NoError(t, err)
		defer direct.Close()
		require.NoError(t, direct.Do(t.Context(), set(direct, "k", "w")).Error())
		stranger := s.Option()
		stranger.TLSConfig.RootCAs = nil
		if client, err = rueidis.NewClient(stranger); client != nil {
			defer client.Close()
		}
		require.ErrorContains(t, err, "certificate")
	})
}

func TestValkeyIsNamedOrFound(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	named := filepath.Join(t.TempDir(), "valkey-server")
	t.Setenv("FENCELOCK_VALKEY", named)
	t.Setenv("CI", "true")
	require.NoError(t, os.WriteFile(named, nil, 0o700))
	require.Equal(t, named, testredis.Valkey(t))
	require.Contains(t, testredis.Binaries(), named)

	t.Setenv("FENCELOCK_VALKEY", "none")
	v := &verdict{TB: t}
	require.Empty(t, testredis.Valkey(v))
	require.Contains(t, v.skipped, "install-valkey")
	require.Empty(t, v.failed, "somebody has looked for it already")
}
