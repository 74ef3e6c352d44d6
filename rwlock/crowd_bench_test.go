package rwlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

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
