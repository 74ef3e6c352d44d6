package rwlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// BenchmarkCrowd has many goroutines of one process wait for a lock. It reports how long the process takes for a pair
// on another name while they wait, how many hand-offs a second they get, and how long Close takes while they wait.
func BenchmarkCrowd(b *testing.B) {
	crowds, spell := []int{10_000, 100_000}, time.Second
	if testing.Short() {
		crowds, spell = []int{1_000}, time.Second/10
	}
	for _, waiters := range crowds {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			var pairs []time.Duration
			var handoffs, closing float64
			for b.Loop() {
				c := newBenchmarkedCrowd(b, waiters)
				pairs = append(pairs, c.timePairs(3*spell)...)
				handoffs += c.handoffs(5 * spell)
				closing += c.timeClose().Seconds()
			}
			slices.Sort(pairs)
			b.ReportMetric(float64(pairs[len(pairs)*99/100].Microseconds())/1000, "p99-ms/pair")
			b.ReportMetric(handoffs/float64(b.N), "handoffs/s")
			b.ReportMetric(closing/float64(b.N), "s/Close")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// benchmarkedCrowd is a process whose goroutines lock one name again and again, while another process holds it.
type benchmarkedCrowd struct {
	b          *testing.B
	locker     *rwlock.Locker
	held       *rwlock.Lease
	served     atomic.Int64
	goroutines sync.WaitGroup
}

func newBenchmarkedCrowd(b *testing.B, waiters int) *benchmarkedCrowd {
	b.Helper()
	server := testredis.Start(b)
	locker := func() *rwlock.Locker {
		locker := testkit.Dial(b, server.Addr(), rueidis.ClientOption{})
		return locker
	}
	held, err := locker().Lock(b.Context(), "crowd")
	require.NoError(b, err)
	c := &benchmarkedCrowd{b: b, locker: locker(), held: held}
	for range waiters {
		c.goroutines.Go(c.lockUntilClosed)
	}
	for c.locker.Stats().Waiting < waiters {
		time.Sleep(50 * time.Millisecond) // Stats looks at every lease
	}
	return c
}

func (c *benchmarkedCrowd) lockUntilClosed() {
	for {
		lease, err := c.locker.Lock(c.b.Context(), "crowd")
		if err != nil {
			return
		}
		c.served.Add(1)
		if lease.Release(c.b.Context()) != nil {
			return
		}
	}
}

func (c *benchmarkedCrowd) timePairs(during time.Duration) (pairs []time.Duration) {
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(time.Millisecond) {
		began := time.Now()
		lease, err := c.locker.Lock(c.b.Context(), "other")
		require.NoError(c.b, err)
		require.NoError(c.b, lease.Release(c.b.Context()))
		pairs = append(pairs, time.Since(began))
	}
	return pairs
}

// handoffs releases the lock, and returns how many of the crowd get it a second.
func (c *benchmarkedCrowd) handoffs(during time.Duration) float64 {
	require.NoError(c.b, c.held.Release(c.b.Context()))
	began := time.Now()
	time.Sleep(during)
	return float64(c.served.Load()) / time.Since(began).Seconds()
}

func (c *benchmarkedCrowd) timeClose() time.Duration {
	began := time.Now()
	require.NoError(c.b, c.locker.Close())
	took := time.Since(began)
	c.goroutines.Wait()
	return took
}

func benchmarkedMutex(b *testing.B, opts ...rwlock.MutexOption) *rwlock.RWMutex {
	locker := testkit.New(b, testredis.Start(b).Client(b))
	return locker.RWMutex("n", opts...)
}

// A reader beside readers of its process.
func BenchmarkRWMutexJoin(b *testing.B) {
	mu := benchmarkedMutex(b)
	require.NoError(b, mu.RLock(b.Context()))
	b.ReportAllocs()
	for b.Loop() {
		if mu.RLock(b.Context()) != nil || mu.RUnlock(b.Context()) != nil {
			b.Fatal("not read")
		}
	}
	require.NoError(b, mu.RUnlock(b.Context()))
}

// The same from all processors at once; and sync.RWMutex, which no other process sees.
func BenchmarkRWMutexJoinParallel(b *testing.B) {
	mu := benchmarkedMutex(b)
	require.NoError(b, mu.RLock(b.Context()))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if mu.RLock(b.Context()) != nil || mu.RUnlock(b.Context()) != nil {
				b.Error("not read")
			}
		}
	})
	require.NoError(b, mu.RUnlock(b.Context()))
}

func BenchmarkSyncRWMutexJoinParallel(b *testing.B) {
	var mu sync.RWMutex
	value := 1
	b.RunParallel(func(pb *testing.PB) {
		sum := 0
		for pb.Next() {
			mu.RLock()
			sum += value
			mu.RUnlock()
		}
		_ = sum
	})
}

// The same goroutine again, within WithLinger.
func BenchmarkRWMutexRelock(b *testing.B) {
	mu := benchmarkedMutex(b, rwlock.WithLinger(time.Minute))
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if mu.Lock(ctx) != nil || mu.Unlock(ctx) != nil {
			b.Fatal("not locked")
		}
	}
}

// 64 goroutines of a process hand the lock on.
func BenchmarkRWMutexHandOn(b *testing.B) {
	mu := benchmarkedMutex(b)
	ctx := context.Background()
	var all sync.WaitGroup
	b.ReportAllocs()
	for range 64 {
		all.Go(func() {
			for range b.N / 64 {
				if mu.Lock(ctx) != nil || mu.Unlock(ctx) != nil {
					b.Error("not locked")
				}
			}
		})
	}
	all.Wait()
}
