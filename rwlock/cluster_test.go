package rwlock_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// namesOf returns n names of locks that this master has.
func namesOf(c *testredis.Cluster, master *testredis.Server, n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := "n" + strconv.Itoa(i); c.Owner(c.Slot("fencelock:{"+name+"}")) == master {
			names = append(names, name)
		}
	}
	return names
}

// broadcasts returns how many messages the nodes have sent each other over the bus for subscribers.
func broadcasts(t *testing.T, c *testredis.Cluster) (n int) {
	for _, node := range c.Nodes() {
		reply := expect.NoError(node.Command("CLUSTER", "INFO")).In(t)
		if _, rest, found := strings.Cut(reply.(string), "cluster_stats_messages_publish_sent:"); found {
			n += expect.NoError(strconv.Atoi(strings.Fields(rest)[0])).In(t)
		}
	}
	return n
}

// A hand-off reaches the process that waits and nobody else, without another round trip.
func TestHandOffsInAClusterAreNoBroadcasts(t *testing.T) {
	t.Parallel()
	for _, binary := range testredis.Binaries() {
		t.Run(binary[strings.LastIndexByte(binary, '/')+1:], func(t *testing.T) {
			c := testredis.StartCluster(t, binary, 1)
			link := testredis.NewLink(t, c.Option())
			a, b := testkit.Dial(t, "", link.Option()), testkit.Dial(t, "", c.Option())
			t.Cleanup(func() { require.NoError(t, a.Close()) })
			handOff := func() {
				held := expect.NoError(b.Lock(t.Context(), "n")).In(t)
				done := inTurn(t.Context(), a.Lock, "n")
				untilWaiting(t, a)
				require.NoError(t, held.Release(t.Context()))
				require.NoError(t, <-done)
			}
			for range 3 { // until it listens, and all nodes know the scripts
				handOff()
			}
			before, calls := broadcasts(t, c), link.Calls("EVALSHA")
			begun := time.Now()
			const n = 30
			for range n {
				handOff()
			}
			refreshes := int(time.Since(begun)/(500*time.Millisecond)) + 1
			require.LessOrEqual(t, link.Calls("EVALSHA")-calls, 2*n+refreshes)
			require.LessOrEqual(t, broadcasts(t, c)-before, n/3, "not one for each")
		})
	}
}

// A cluster behind one address refuses calls for several locks. Leases live on there, and the log says so once.
func TestLeasesWhereCallsForSeveralLocksAreRefused(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const leases, rounds = 40, 4
		var j testkit.Log
		p, other := w.Process(j.Option()), w.Process()
		p.Link.Deny(testredis.CrossSlot)
		other.Link.Deny(testredis.CrossSlot)
		all := holdMany(w.T, p.Locker, leases)
		waiter := other.Queue("0", rwlock.Write)
		w.Eventually("each lease to be renewed some times", func() bool { return p.Stats().Renewed >= leases*rounds })
		noneLost(w.T, p.Locker, all)
		require.Zero(w, p.Stats().RenewFailed)
		w.Release(all...)
		waiter.Granted()
		require.NoError(w, p.Close()) // the log is complete
		text := j.String()
		require.Equal(w, 1, strings.Count(text, "one by one"), text)
		require.Contains(w, text, "CROSSSLOT")
	})
}

// A slot that is left on its way from one node to another, with nothing moved or with some keys moved: leases there
// are renewed and given back, writers still follow each other, and nobody enters beside a hold. What has to wait gets
// in after the move.
func TestASlotThatIsLeftMoving(t *testing.T) {
	t.Parallel() // starting servers is mostly waiting
	cluster := testredis.StartCluster(t, redisBinary(t), 0)
	for what, moved := range map[string]func(m *testredis.Move, lock string){
		"nothing moved":               func(*testredis.Move, string) {},
		"the lock moved":              func(m *testredis.Move, lock string) { m.Key(lock) },
		"all that is there moved":     func(m *testredis.Move, _ string) { m.Keys() },
		"the readers' expiries moved": func(m *testredis.Move, lock string) { m.Key(lock + ":h") },
	} {
		for _, mode := range bothModes {
			t.Run(what+", "+mode.String(), func(t *testing.T) {
				t.Parallel()
				cluster := cluster.For(t)
				leftMoving(testkit.OnGroup(t, cluster), cluster, what, mode, moved)
			})
		}
	}
}

// The same where grants and renewals count with a replica: a call that is redirected takes its WAIT with it.
func TestASlotThatIsLeftMovingWithReplicas(t *testing.T) {
	testredis.NeedAll(t, "servers with replicas take their time")
	t.Parallel()
	cluster := testredis.StartCluster(t, redisBinary(t), 1)
	w := testkit.OnGroup(t, cluster)
	w.Opts = []rwlock.Option{rwlock.WithReplicas(1, 3*time.Second)}
	leftMoving(w, cluster, "n", rwlock.Write, func(m *testredis.Move, _ string) { m.Keys() })
}

func leftMoving(
	w *world, cluster *testredis.Cluster, name string, mode rwlock.Mode, moved func(*testredis.Move, string),
) {
	w.TTL = time.Hour // no renewal is due, and none is late
	split := mode == rwlock.Read && (name == "the lock moved" || name == "the readers' expiries moved")
	name += ", " + mode.String()
	lock := "fencelock:{" + name + "}"
	p, q := w.Process(), w.Process()
	held := p.Take(name, mode)
	slot := cluster.Slot(lock)
	move := cluster.BeginMove(slot, cluster.Another(cluster.Owner(slot)))
	moved(move, lock)
	if split { // the keys of one lock on two nodes, as for a moment in every move: everybody waits
		next := q.Acquire(w.Ctx, name, rwlock.Write)
		_, err := p.TryLock(w.Ctx, name)
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.False(w, rwlock.Indeterminate(err))
		move.End()
		require.True(w, next.IsWaiting())
		w.Release(next.GrantedAfter(held))
		return
	}
	w.Eventually("it is renewed some times", func() bool {
		_ = held.Renew(w.Ctx) // it is tried again on a busy machine
		require.NoError(w, held.Err())
		return p.Stats().Renewed > 3
	})
	require.LessOrEqual(w, p.Stats().RenewFailed, uint64(2))
	require.ErrorIs(w, expect.ErrorOf(q.TryLock(w.Ctx, name)), rwlock.ErrNotAcquired)
	w.Release(q.Acquire(w.Ctx, name, rwlock.Write).GrantedAfter(held))
	reader := p.Acquire(w.Ctx, name, rwlock.Read)
	move.End()
	w.Release(reader.Granted())
}

// A server that has flushed its scripts names itself otherwise in hand-offs, which are soon believed again.
func TestHandOffsAfterAScriptFlush(t *testing.T) {
	t.Parallel() // a subscription has to be a second old
	cluster := testredis.StartCluster(t, redisBinary(t), 0)
	w := testkit.OnGroup(t, cluster)
	link := testredis.NewLink(t, cluster.Option())
	waiter := lockerOf(t, link.Client(t))
	p := w.Process()
	believed := func() bool {
		held := p.Take("n", rwlock.Write)
		next := (&process{Locker: waiter, W: w}).Acquire(w.Ctx, "n", rwlock.Write)
		untilWaiting(t, waiter)
		before := link.Calls("EVALSHA")
		lease := next.GrantedAfter(held)
		asked := link.Calls("EVALSHA") > before
		w.Release(lease)
		return !asked
	}
	w.Eventually("a hand-off is believed", believed)
	require.NoError(t, expect.ErrorOf(cluster.Owner(cluster.Slot("fencelock:{n}")).Command("SCRIPT", "FLUSH")))
	w.Eventually("a hand-off is believed again", believed)
}
