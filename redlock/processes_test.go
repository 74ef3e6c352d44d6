package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

const processTTL = time.Second

// load is the work of many lockers at once: short critical sections, reading and writing, on a few names.
type load struct {
	checker *judge.Judge
	done    atomic.Int64 // sections completed
	stop    chan struct{}
	work    sync.WaitGroup
}

func startLoad(t *testing.T, all []*process) *load {
	l := &load{checker: judge.For(t, "load"), stop: make(chan struct{})}
	for i, p := range all {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		l.work.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				if err := l.section(t.Context(), p, rng); err != nil {
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
func (l *load) section(ctx context.Context, p *process, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	name, acquire := fmt.Sprint("name-", rng.IntN(4)), p.Lock
	if rng.IntN(3) == 0 {
		acquire = p.RLock
	}
	at := l.checker.Begin(name)
	lease, err := acquire(ctx, name)
	if err != nil {
		return err
	}
	l.checker.Acquired(at, lease)
	pause(ctx, upTo(rng, 20*time.Millisecond))
	l.checker.Sweep()
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

// Many lockers work on while two of five servers at a time are killed and come back empty, stand still for longer
// than a TTL, and are cut off in one direction.
func TestProcessesMinorityFails(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 5)
	w.TTL = processTTL
	all := []*process{w.Process(redlock.WithNodeTimeout(processTTL / 5))}
	for range testredis.Few(7, 15) {
		all = append(all, w.ProcessOver(testkit.Net{Over: all[0]}, redlock.WithNodeTimeout(processTTL/5)))
	}
	links := all[0].Links
	l := startLoad(t, all)
	defer func() {
		close(l.stop)
		l.work.Wait()
		t.Log(l.checker.Summary())
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
		links[i].Restore()
		links[i].Cut() // else its clients may take seconds to find out that the stream has a hole
	}
	phase("killed", func(i int) { w.Servers[i].Kill() }, func(i int) { w.Servers[i].Restart() }, 0, 1)
	phase("frozen", func(i int) { w.Servers[i].Freeze() }, func(i int) { w.Servers[i].Thaw() }, 2, 3)
	phase("no answers", func(i int) { links[i].Blackhole(testredis.ToClient) }, restored, 4, 0)
	phase("no requests", func(i int) { links[i].Blackhole(testredis.ToServer) }, restored, 1, 2)
}

// With a majority down an acquisition fails within its bound and says what is wrong with whom; when the servers are
// back the same lockers go on.
func TestProcessesMajorityFails(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 5)
	locker := w.Process(rwlock.WithTTL(5*processTTL), redlock.WithNodeTimeout(processTTL/3))
	locker.Section("x")

	w.Servers[0].Kill()
	w.Servers[2].Freeze()
	locker.Links[4].Blackhole(testredis.ToClient)
	for _, acquire := range []func(context.Context, string, ...rwlock.LockOption) (*rwlock.Lease, error){
		locker.Lock, locker.TryLock, locker.RLock, locker.TryRLock,
	} {
		// The bound is exact in fake time, in TestQuorumErrorNamesEachCause.
		_, err := acquire(w.Soon(time.Minute), "x", rwlock.WithMaxWait(processTTL))
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
			require.Equal(t, locker.Proxies[node.Index].Addr(), node.Addr)
			require.Contains(t, err.Error(), node.Addr)
			require.Error(t, node.Err)
			require.NotEqual(t, context.DeadlineExceeded.Error(), node.Err.Error(), "whose deadline?")
			if node.Index%2 == 1 { // it is well, and a busy machine made it late
				require.ErrorAs(t, node.Err, new(*rwlock.NoReplyError))
			}
		}
		require.Subset(t, failing, []int{0, 2, 4}, "%v", err)
	}

	w.Servers[0].Restart()
	w.Servers[2].Thaw()
	locker.Restore(4)
	require.NoError(t, locker.TrySection(w.Soon(time.Minute), "x"))
}
