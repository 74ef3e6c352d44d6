package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

const processTTL = time.Second

// site is five real masters, each behind a proxy.
type site struct {
	t       *testing.T
	servers []*testredis.Server
	proxies []*testredis.Proxy
}

func newSite(t *testing.T) *site {
	s := &site{t: t}
	for range 5 {
		server := testredis.Start(t)
		s.servers = append(s.servers, server)
		s.proxies = append(s.proxies, testredis.NewProxy(t, server.Addr()))
	}
	return s
}

func (s *site) locker(opts ...rwlock.Option) *rwlock.Locker {
	var clients []rueidis.Client
	for _, p := range s.proxies {
		clients = append(clients, p.Client(s.t))
	}
	all := slices.Concat([]rwlock.Option{rwlock.WithTTL(processTTL)}, opts, []rwlock.Option{testredis.Patience()})
	locker, err := redlock.New(clients, all...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, locker.Close()) })
	return locker
}

// load is the work of many lockers at once: short critical sections, reading and writing, on a few names.
type load struct {
	checker *checker
	done    atomic.Int64 // sections completed
	stop    chan struct{}
	work    sync.WaitGroup
}

func startLoad(t *testing.T, lockers []*rwlock.Locker) *load {
	l := &load{checker: newChecker(t, "load"), stop: make(chan struct{})}
	for i, locker := range lockers {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		l.work.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				if err := l.section(t.Context(), locker, rng); err != nil {
					t.Errorf("locker %d: %v", i, err)
					return
				}
			}
		})
	}
	return l
}

// section must succeed whatever a minority of the masters does. That its lease was lost meanwhile is no failure of the
// lock, since the checker sees to it that nobody believed in it any more; nor is a release that a busy machine has not
// confirmed in time, since it is pursued.
func (l *load) section(ctx context.Context, locker *rwlock.Locker, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	name, acquire := fmt.Sprint("name-", rng.IntN(4)), locker.Lock
	if rng.IntN(3) == 0 {
		acquire = locker.RLock
	}
	at := l.checker.begin(name)
	lease, err := acquire(ctx, name)
	if err != nil {
		return err
	}
	l.checker.acquired(at, lease)
	pause(ctx, upTo(rng, 20*time.Millisecond))
	l.checker.sweep()
	if err := lease.Release(ctx); err != nil && !errors.Is(err, rwlock.ErrLost) && !rwlock.Indeterminate(err) {
		return err
	}
	l.done.Add(1)
	return nil
}

// progress waits until so many more sections are complete, and at least for d.
func (l *load) progress(t *testing.T, sections int64, d time.Duration) {
	t.Helper()
	target := l.done.Load() + sections
	atLeast, limit := time.NewTimer(d), time.NewTimer(time.Minute)
	defer atLeast.Stop()
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	<-atLeast.C
	for l.done.Load() < target {
		select {
		case <-limit.C:
			t.Fatalf("%d sections short of %d", target-l.done.Load(), sections)
		case <-tick.C:
		}
	}
}

// Sixteen lockers work on while two of five servers at a time are killed and come back empty, stand still for longer
// than a TTL, and are cut off in one direction.
func TestProcessesMinorityFails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var lockers []*rwlock.Locker
	for range 16 {
		lockers = append(lockers, s.locker(redlock.WithNodeTimeout(processTTL/5)))
	}
	l := startLoad(t, lockers)
	defer func() {
		close(l.stop)
		l.work.Wait()
		t.Log(l.checker.summary())
	}()
	const some = 60
	l.progress(t, some, 0)
	phase := func(what string, strike, end func(i int), masters ...int) {
		begun, before := time.Now(), l.done.Load()
		for _, i := range masters {
			strike(i)
		}
		l.progress(t, some, 3*processTTL/2)
		for _, i := range masters {
			end(i)
		}
		l.progress(t, some, 3*processTTL/2) // a restarted one has its vote again then
		t.Logf("%s: %d sections in %v", what, l.done.Load()-before, time.Since(begun).Round(time.Millisecond))
	}
	restored := func(i int) {
		s.proxies[i].Restore()
		s.proxies[i].Cut() // else its clients may take seconds to find out that the stream has a hole
	}
	phase("killed", func(i int) { s.servers[i].Kill() }, func(i int) { s.servers[i].Restart() }, 0, 1)
	phase("frozen", func(i int) { s.servers[i].Freeze() }, func(i int) { s.servers[i].Thaw() }, 2, 3)
	phase("no answers", func(i int) { s.proxies[i].Blackhole(testredis.ToClient) }, restored, 4, 0)
	phase("no requests", func(i int) { s.proxies[i].Blackhole(testredis.ToServer) }, restored, 1, 2)
}

// With a majority down an acquisition fails within its bound and says what is wrong with whom; when the servers are
// back the same lockers go on.
func TestProcessesMajorityFails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	locker := s.locker(rwlock.WithTTL(5*processTTL), redlock.WithNodeTimeout(processTTL/3))
	lease, err := locker.Lock(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))

	s.servers[0].Kill()
	s.servers[2].Freeze()
	s.proxies[4].Blackhole(testredis.ToClient)
	for _, acquire := range []func(context.Context, string, ...rwlock.LockOption) (*rwlock.Lease, error){
		locker.Lock, locker.TryLock, locker.RLock, locker.TryRLock,
	} {
		// The bound is exact in fake time, in TestQuorumErrorNamesEachCause.
		_, err = acquire(soon(t, time.Minute), "x", rwlock.WithMaxWait(processTTL))
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		require.NotErrorIs(t, err, rwlock.ErrNotAcquired)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "it ends by itself")
		var quorum *rwlock.QuorumError
		require.ErrorAs(t, err, &quorum)
		require.Equal(t, 3, quorum.Need)
		require.LessOrEqual(t, quorum.Got, 2, "%v", err) // a single attempt fails before the others have answered
		var failing []int
		for _, node := range quorum.Nodes {
			failing = append(failing, node.Index)
			require.Equal(t, s.proxies[node.Index].Addr(), node.Addr)
			require.Contains(t, err.Error(), node.Addr)
			require.Error(t, node.Err)
			require.NotEqual(t, context.DeadlineExceeded.Error(), node.Err.Error(), "whose deadline?")
			if node.Index%2 == 1 { // it is well, and a busy machine made it late
				require.ErrorAs(t, node.Err, new(*rwlock.NoReplyError))
			}
		}
		require.Subset(t, failing, []int{0, 2, 4}, "%v", err)
	}

	s.servers[0].Restart()
	s.servers[2].Thaw()
	s.proxies[4].Restore()
	lease, err = locker.Lock(soon(t, time.Minute), "x")
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}
