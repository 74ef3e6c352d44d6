package rwlock_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

// clusterLocker is a locker over a client of its own.
func clusterLocker(t *testing.T, d testredis.Deployment, opts ...rwlock.Option) *rwlock.Locker {
	option := d.Option()
	option.Dialer.Timeout = testkit.Patience // on a busy machine a second is short
	locker := testkit.Dial(t, "", option, opts...)
	return locker
}

// renewals counts the renewals of each lock.
type renewals struct {
	mu sync.Mutex
	of map[string]int
}

func (r *renewals) trace() rwlock.Option {
	r.of = make(map[string]int)
	return rwlock.WithTrace(&rwlock.Trace{Renewed: func(_ context.Context, e rwlock.TraceEvent) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.of[e.Name]++
	}})
}

func (r *renewals) count(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[name]
}

// One frozen shard takes the leases of its own locks, and holds up nothing on the others: there every lease is renewed
// as often as before, and whoever asks is served.
func TestAFrozenShardCostsOnlyItsOwnLocks(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, redisBinary(t), 0)
	c.NodeTimeout(time.Minute) // or the others take it for dead, and the slots with it
	var renewed renewals
	locker := clusterLocker(t, c, rwlock.WithTTL(5*time.Second), renewed.trace())
	masters := c.Masters()
	leases := make(map[*testredis.Server][]*rwlock.Lease)
	for _, master := range masters {
		for _, name := range namesOf(c, master, 7)[2:] {
			lease, err := locker.Lock(t.Context(), name)
			require.NoError(t, err)
			leases[master] = append(leases[master], lease)
		}
	}
	free := append(namesOf(c, masters[0], 2), namesOf(c, masters[2], 2)...)
	wanted := namesOf(c, masters[1], 2)
	masters[1].Freeze()
	defer masters[1].Thaw()
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for _, name := range wanted {
		asking.Go(func() { _, _ = locker.Lock(ctx, name) }) // those who want the frozen ones go on asking
	}
	for _, lease := range leases[masters[1]] {
		<-lease.Done()
	}
	for _, lease := range append(leases[masters[0]], leases[masters[2]]...) {
		require.NoError(t, lease.Err(), lease.Name())
		require.NotZero(t, renewed.count(lease.Name()))
	}
	for i := range 80 {
		lease, err := locker.TryLock(t.Context(), free[i%len(free)])
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	cancel()
	asking.Wait()
}

// broadcasts returns how many messages the nodes have sent each other over the bus for subscribers.
func broadcasts(t *testing.T, c *testredis.Cluster) (n int) {
	for _, node := range c.Nodes() {
		reply, err := node.Command("CLUSTER", "INFO")
		require.NoError(t, err)
		_, rest, found := strings.Cut(reply.(string), "cluster_stats_messages_publish_sent:")
		if !found {
			continue // none
		}
		sent, err := strconv.Atoi(strings.Fields(rest)[0])
		require.NoError(t, err)
		n += sent
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
			client, err := rwlock.Dial("", link.Option())
			require.NoError(t, err)
			t.Cleanup(client.Close)
			a := lockerOf(t, client)
			b := clusterLocker(t, c)
			handOff := func() {
				held, err := b.Lock(t.Context(), "n")
				require.NoError(t, err)
				done := make(chan error)
				go func() {
					next, err := a.Lock(t.Context(), "n")
					if err == nil {
						err = next.Release(t.Context())
					}
					done <- err
				}()
				require.Eventually(t, func() bool { return a.Stats().Waiting == 1 }, testkit.Patience, time.Millisecond)
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

// listeners returns how many channels of lockers have a subscriber on this server.
func listeners(t *testing.T, s *testredis.Server) int {
	n := 0
	for _, kind := range []string{"CHANNELS", "SHARDCHANNELS"} {
		reply, err := s.Command("PUBSUB", kind, "fencelock:c:*")
		require.NoError(t, err)
		n += len(reply.([]any))
	}
	return n
}

// working has lockers of processes of their own take these locks all the time, until it is ended.
type working struct {
	grants, faults   atomic.Int64
	tokens           sync.Map
	writers, readers map[string]*atomic.Int64
	group            sync.WaitGroup
	end              context.CancelFunc
}

func startWorking(t *testing.T, d testredis.Deployment, processes int, names ...string) *working {
	ctx, cancel := context.WithCancel(t.Context())
	w := &working{end: cancel, writers: make(map[string]*atomic.Int64), readers: make(map[string]*atomic.Int64)}
	for _, name := range names {
		w.writers[name], w.readers[name] = new(atomic.Int64), new(atomic.Int64)
	}
	for range processes {
		l := clusterLocker(t, d)
		for i := range 5 {
			w.group.Go(func() {
				for n := i; ctx.Err() == nil; n++ {
					name := names[n%len(names)]
					if n%2 == 0 {
						w.hold(ctx, l.Lock, name, w.writers)
					} else {
						w.hold(ctx, l.RLock, name, w.readers)
					}
				}
			})
		}
	}
	t.Cleanup(w.stop)
	return w
}

// hold takes the lock for a moment, and counts it as a fault if a token comes twice or somebody is beside a writer.
func (w *working) hold(
	ctx context.Context, lock func(context.Context, string, ...rwlock.LockOption) (*rwlock.Lease, error), name string,
	mine map[string]*atomic.Int64,
) {
	lease, err := lock(ctx, name)
	if err != nil {
		return
	}
	mine[name].Add(1)
	_, twice := w.tokens.LoadOrStore(fmt.Sprint(name, lease.Token()), true)
	writers, readers := w.writers[name].Load(), w.readers[name].Load()
	if lease.Err() == nil && (twice || writers > 1 || writers == 1 && readers > 0) {
		w.faults.Add(1)
	}
	w.grants.Add(1)
	time.Sleep(2 * time.Millisecond)
	mine[name].Add(-1)
	_ = lease.Release(context.Background())
}

// more waits for so many grants.
func (w *working) more(t *testing.T, n int64) {
	before := w.grants.Load()
	require.Eventually(t, func() bool { return w.grants.Load() >= before+n }, testkit.Patience, time.Millisecond)
}

func (w *working) stop() {
	w.end()
	w.group.Wait()
}

// After a planned failover the old master lives on, and has nobody's subscription.
func TestSubscriptionsFollowAPlannedFailover(t *testing.T) {
	t.Parallel()
	binary := redisBinary(t)
	t.Run("Sentinel", func(t *testing.T) {
		s := testredis.StartSentinel(t, binary)
		follow(t, s, "n", func(*testredis.Server) *testredis.Server { return s.Failover() })
	})
	t.Run("Cluster", func(t *testing.T) {
		c := testredis.StartCluster(t, binary, 1)
		follow(t, c, namesOf(c, c.Masters()[0], 1)[0], c.Failover)
	})
}

func follow(t *testing.T, d testredis.Deployment, name string, failOver func(*testredis.Server) *testredis.Server) {
	const processes = 2
	w := startWorking(t, d, processes, name)
	listenedTo := func(s *testredis.Server) {
		require.Eventually(t, func() bool { return listeners(t, s) >= processes }, testkit.Patience, 10*time.Millisecond)
	}
	old := d.Masters()[0]
	listenedTo(old)
	listenedTo(failOver(old))
	require.Eventually(t, func() bool { return listeners(t, old) == 0 }, testkit.Patience, 10*time.Millisecond)
	w.more(t, 20)
}

// A planned failover of a shard loses nothing, so it breaks nothing: no token is given out twice, and nobody is let in
// beside a writer. Messages of the new master arrive by way of the old one, too, who passes them on as its replica.
func TestAPlannedFailoverBreaksNoPromise(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, redisBinary(t), 1)
	old := c.Masters()[0]
	w := startWorking(t, c, 6, namesOf(c, old, 6)...)
	w.more(t, 300)
	c.Failover(old)
	w.more(t, 1000)
	w.stop()
	require.Zero(t, w.faults.Load())
}

// A slot that has moved to another node is followed there by everybody, also by those who hold its lock.
func TestALockFollowsItsSlot(t *testing.T) {
	t.Parallel() // a new cluster takes its time
	cluster := testredis.StartCluster(t, redisBinary(t), 0)
	w := testkit.OnGroup(t, cluster)
	w.TTL = 5 * time.Second
	p, q := w.Process(), w.Process()
	slot := cluster.Slot("fencelock:{n}")
	for range 2 {
		held, waiting := p.Take("n", rwlock.Write), q.Acquire(w.Ctx, "n", rwlock.Read)
		before := p.Stats().Renewed
		cluster.BeginMove(slot, cluster.Another(cluster.Owner(slot))).End()
		w.Eventually("it is renewed there", func() bool { return p.Stats().Renewed >= before+3 })
		require.True(t, waiting.IsWaiting())
		require.NoError(t, held.Err())
		w.Release(held)
		w.Release(waiting.Granted())
		slot = cluster.Slot("fencelock:{n}")
	}
}

// While a master is dead and has no replica nobody serves its slots: an attempt says so at once, and Lock goes on
// asking until somebody does.
func TestAClusterThatIsDown(t *testing.T) {
	t.Parallel() // it waits for the cluster to notice
	cluster := testredis.StartCluster(t, redisBinary(t), 0)
	cluster.NodeTimeout(300 * time.Millisecond)
	w := testkit.OnGroup(t, cluster)
	w.TTL = 5 * time.Second
	p := w.Process()
	p.WarmUp()
	sick := cluster.Owner(cluster.Slot("fencelock:{n}"))
	alive := slices.DeleteFunc(cluster.Nodes(), func(s *testredis.Server) bool { return s == sick })
	sick.Kill()
	w.Eventually("all others notice", func() bool {
		return !slices.ContainsFunc(alive, func(s *testredis.Server) bool {
			_, err := s.Command("GET", "fencelock:{warm up}")
			return err == nil || !strings.HasPrefix(err.Error(), "CLUSTER")
		})
	})
	names := []string{"n", "a", "b", "c", "d", "e"} // on all masters: without full coverage none serves
	for _, name := range names {
		ctx, cancel := context.WithTimeout(w.Ctx, testkit.Patience)
		_, err := p.TryLock(ctx, name)
		require.ErrorIs(t, err, rwlock.ErrNoQuorum, name)
		require.NoError(t, ctx.Err(), "an attempt waited")
		cancel()
	}
	waiting := p.Acquire(w.Ctx, "n", rwlock.Write)
	require.True(t, waiting.IsWaiting())
	sick.Restart()
	w.Release(waiting.Granted())
}

// In a Cluster an error names the node that has refused, and not all that there are.
func TestErrorsNameTheNodeOfTheLock(t *testing.T) {
	t.Parallel() // a new cluster takes its time
	cluster := testredis.StartCluster(t, redisBinary(t), 0)
	w := testkit.OnGroup(t, cluster)
	w.TTL = 5 * time.Second
	p := w.Process()
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		node := cluster.Owner(cluster.Slot("fencelock:{" + name + "}"))
		w.Eventually("the client knows the nodes", func() bool {
			s, err := p.Inspect(w.Ctx, name)
			return err == nil && s.Masters[0].Addr == node.Addr()
		})
		commandOn(t, node, "CONFIG", "SET", "maxmemory", "1")
		_, err := p.TryLock(w.Ctx, name)
		commandOn(t, node, "CONFIG", "SET", "maxmemory", "0")
		var failed *rwlock.QuorumError
		require.ErrorAs(t, err, &failed)
		require.Len(t, failed.Nodes, 1)
		require.Equal(t, node.Addr(), failed.Nodes[0].Addr)
		require.ErrorContains(t, err, "OOM")
	}
}

// A cluster behind one address looks like one server, and refuses calls for several locks. Leases that are renewed in
// one call elsewhere live on there, and the log says once that they are renewed one by one.
func TestLeasesWhereCallsForSeveralLocksAreRefused(t *testing.T) {
	everywhere(t, func(w *world) {
		const leases, rounds = 40, 4
		var j testkit.Log
		p, other := w.Process(j.Option()), w.Process()
		p.Link.Deny(testredis.CrossSlot)
		other.Link.Deny(testredis.CrossSlot)
		all := holdMany(w.T, p.Locker, leases)
		waiter := other.Queue("0", rwlock.Write)
		w.Eventually("each lease to be renewed some times", func() bool {
			return p.Stats().Renewed >= leases*rounds
		})
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
	t.Parallel() // it waits for more than a TTL
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
				w := testkit.OnGroup(t, cluster)
				w.TTL = 5 * time.Second
				leftMoving(w, cluster, what, mode, moved)
			})
		}
	}
}

// The same where each grant and each renewal counts with a replica of the node that answers.
func TestASlotThatIsLeftMovingWithReplicas(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, redisBinary(t), 1)
	for what, moved := range map[string]func(m *testredis.Move, lock string){
		"nothing moved":           func(*testredis.Move, string) {},
		"all that is there moved": func(m *testredis.Move, _ string) { m.Keys() },
	} {
		for _, mode := range bothModes {
			t.Run(what+", "+mode.String(), func(t *testing.T) {
				t.Parallel()
				cluster := cluster.For(t)
				w := testkit.OnGroup(t, cluster)
				w.TTL = 10 * time.Second
				w.Opts = []rwlock.Option{rwlock.WithReplicas(1, 3*time.Second)}
				leftMoving(w, cluster, what, mode, moved)
			})
		}
	}
}

func leftMoving(
	w *world, cluster *testredis.Cluster, name string, mode rwlock.Mode, moved func(*testredis.Move, string),
) {
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
		w.Release(held)
		w.Release(next.Granted())
		return
	}
	w.Eventually("it is renewed for longer than a TTL", func() bool {
		require.NoError(w, held.Err())
		return p.Stats().Renewed > 3
	})
	_, err := q.TryLock(w.Ctx, name)
	require.ErrorIs(w, err, rwlock.ErrNotAcquired)
	next := q.Acquire(w.Ctx, name, rwlock.Write)
	w.Release(held)
	w.Release(next.Granted())
	reader := p.Acquire(w.Ctx, name, rwlock.Read)
	move.End()
	w.Release(reader.Granted())
}

// A server that has flushed its scripts names itself otherwise in the messages of hand-offs. They are soon believed
// again: whoever is handed the lock does not have to ask.
func TestHandOffsAfterAScriptFlush(t *testing.T) {
	t.Parallel() // a subscription has to be a second old
	cluster := testredis.StartCluster(t, redisBinary(t), 0)
	w := testkit.OnGroup(t, cluster)
	w.TTL = 10 * time.Second
	link := testredis.NewLink(t, cluster.Option())
	waiter, err := rwlock.New(link.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, waiter.Close()) })
	p := w.Process()
	believed := func() bool {
		held := p.Take("n", rwlock.Write)
		var next *rwlock.Lease
		granted := make(chan error, 1)
		go func() {
			var err error
			next, err = waiter.Lock(t.Context(), "n")
			granted <- err
		}()
		require.Eventually(t, func() bool { return waiter.Stats().Waiting == 1 }, testkit.Patience, time.Millisecond)
		before := link.Calls("EVALSHA")
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-granted)
		asked := link.Calls("EVALSHA") > before
		require.NoError(t, next.Release(t.Context()))
		return !asked
	}
	w.Eventually("a hand-off is believed", believed)
	_, err = cluster.Owner(cluster.Slot("fencelock:{n}")).Command("SCRIPT", "FLUSH")
	require.NoError(t, err)
	w.Eventually("a hand-off is believed again", believed)
}
