package rwlock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
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
	client, err := rwlock.Dial("", d.Option())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	locker, err := rwlock.New(client, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = locker.Close() })
	return locker
}

// One frozen shard takes the leases of its own locks, and holds up nothing on the others: there every lease is renewed
// as often as before, and whoever asks is served.
func TestAFrozenShardCostsOnlyItsOwnLocks(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, testredis.Binaries()[0], 0)
	var renewed sync.Map // names
	locker := clusterLocker(t, c, rwlock.WithTTL(5*time.Second), rwlock.WithTrace(&rwlock.Trace{
		Renewed: func(e rwlock.TraceEvent) { renewed.Store(e.Name, true) },
	}))
	masters := c.Masters()
	leases := make(map[*testredis.Server][]*rwlock.Lease)
	for _, master := range masters {
		for _, name := range namesOf(c, master, 7)[2:] {
			lease, err := locker.Lock(t.Context(), name)
			require.NoError(t, err)
			leases[master] = append(leases[master], lease)
		}
	}
	masters[1].Freeze()
	defer masters[1].Thaw()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asking sync.WaitGroup
	for _, name := range namesOf(c, masters[1], 2) {
		asking.Go(func() { _, _ = locker.Lock(ctx, name) }) // those who want the frozen ones go on asking
	}
	for _, lease := range leases[masters[1]] {
		<-lease.Done()
	}
	for _, master := range []*testredis.Server{masters[0], masters[2]} {
		for _, lease := range leases[master] {
			require.NoError(t, lease.Err(), lease.Name())
			_, ok := renewed.Load(lease.Name())
			require.True(t, ok, lease.Name())
		}
		for _, name := range namesOf(c, master, 2) {
			isServed(t, locker, name)
		}
	}
	cancel()
	asking.Wait()
}

// isServed takes a free lock again and again.
func isServed(t *testing.T, locker *rwlock.Locker, name string) {
	t.Helper()
	for range 20 {
		free, err := locker.TryLock(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, free.Release(t.Context()))
	}
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
				require.Eventually(t, func() bool { return a.Stats().Waiting == 1 }, patience, time.Millisecond)
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

// withFailover starts deployments, each with the function that replaces one of its masters.
var withFailover = map[string]func(*testing.T) (testredis.Deployment, func(*testredis.Server) *testredis.Server){
	"Sentinel": func(t *testing.T) (testredis.Deployment, func(*testredis.Server) *testredis.Server) {
		s := testredis.StartSentinel(t, testredis.Binaries()[0])
		return s, func(*testredis.Server) *testredis.Server { return s.Failover() }
	},
	"Cluster": func(t *testing.T) (testredis.Deployment, func(*testredis.Server) *testredis.Server) {
		c := testredis.StartCluster(t, testredis.Binaries()[0], 1)
		return c, c.Failover
	},
}

// After a planned failover the old master lives on, and has nobody's subscription.
func TestSubscriptionsFollowAPlannedFailover(t *testing.T) {
	t.Parallel()
	for name, start := range withFailover {
		t.Run(name, func(t *testing.T) {
			d, failOver := start(t)
			old, key := d.Masters()[0], "n"
			if c, ok := d.(*testredis.Cluster); ok {
				key = namesOf(c, old, 1)[0]
			}
			lockers := []*rwlock.Locker{clusterLocker(t, d), clusterLocker(t, d)}
			ctx, cancel := context.WithCancel(t.Context())
			var asking sync.WaitGroup
			var grants atomic.Int64
			for _, l := range lockers {
				for range 2 {
					asking.Go(func() {
						for ctx.Err() == nil {
							if l.Do(ctx, key, func(context.Context) error { return nil }) == nil {
								grants.Add(1)
							}
						}
					})
				}
			}
			count := func(s *testredis.Server, want int) func() bool {
				return func() bool { return listeners(t, s) == want }
			}
			require.Eventually(t, count(old, 2), patience, 10*time.Millisecond)
			master := failOver(old)
			require.Eventually(t, count(master, 2), patience, 10*time.Millisecond)
			require.Eventually(t, count(old, 0), patience, 10*time.Millisecond)
			before := grants.Load()
			require.Eventually(t, func() bool { return grants.Load() > before+20 }, patience, 10*time.Millisecond)
			cancel()
			asking.Wait()
		})
	}
}

// A planned failover of a shard loses nothing, so it breaks nothing: no token is given out twice, and nobody is let in
// beside a writer. Messages of the new master arrive by way of the old one, too, who passes them on as its replica.
func TestAPlannedFailoverBreaksNoPromise(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, testredis.Binaries()[0], 1)
	old := c.Masters()[0]
	names := namesOf(c, old, 6)
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	r := &reports{writers: make(map[string]*atomic.Int64), readers: make(map[string]*atomic.Int64)}
	for _, name := range names {
		r.writers[name], r.readers[name] = new(atomic.Int64), new(atomic.Int64)
	}
	for range 6 {
		l := clusterLocker(t, c)
		for i := range 5 {
			working.Go(func() {
				for n := i; ctx.Err() == nil; n++ {
					r.section(ctx, l, names[n%len(names)], n%2 == 1)
				}
			})
		}
	}
	more := func(n int64) {
		before := r.grants.Load()
		require.Eventually(t, func() bool { return r.grants.Load() >= before+n }, patience, time.Millisecond)
	}
	more(300)
	c.Failover(old)
	more(1000)
	cancel()
	working.Wait()
	require.Zero(t, r.faults.Load())
}

// reports is what many workers tell of the locks that they hold.
type reports struct {
	writers, readers map[string]*atomic.Int64 // of each name, now
	tokens           sync.Map
	faults, grants   atomic.Int64
}

// section holds the lock for a moment. A token that was there before is a fault, and so is anybody beside a writer.
func (r *reports) section(ctx context.Context, l *rwlock.Locker, name string, reads bool) {
	lock, mine := l.Lock, r.writers
	if reads {
		lock, mine = l.RLock, r.readers
	}
	lease, err := lock(ctx, name)
	if err != nil {
		return
	}
	mine[name].Add(1)
	_, twice := r.tokens.LoadOrStore(fmt.Sprint(name, lease.Token()), true)
	w, others := r.writers[name].Load(), r.readers[name].Load()
	if lease.Err() == nil && (twice || w > 1 || w == 1 && others > 0) {
		r.faults.Add(1)
	}
	r.grants.Add(1)
	time.Sleep(2 * time.Millisecond)
	mine[name].Add(-1)
	_ = lease.Release(context.Background())
}
