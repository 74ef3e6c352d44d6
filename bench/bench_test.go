package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// The benchmarks need a real server: miniredis would measure its Lua interpreter.

// bareLock is the least that a lock on Redis can be: no queue, no token, no renewal.
type bareLock struct {
	client rueidis.Client
	delete *rueidis.Lua
}

func newBareLock(client rueidis.Client) bareLock {
	return bareLock{client, rueidis.NewLuaScript(
		`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)}
}

func (l bareLock) cycle(ctx context.Context, name string) error {
	id := ulid.Make().String()
	set := l.client.B().Set().Key(name).Value(id).Nx().Px(10 * time.Second).Build()
	if err := l.client.Do(ctx, set).Error(); err != nil {
		return err
	}
	return l.delete.Exec(ctx, l.client, []string{name}, []string{id}).Error()
}

func lockCycle(ctx context.Context, l *rwlock.Locker, name string) error {
	lease, err := l.Lock(ctx, name)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

func newBenchLocker(b *testing.B, client rueidis.Client) *rwlock.Locker {
	b.Helper()
	l := expect.NoError(rwlock.New(client)).In(b)
	b.Cleanup(func() { require.NoError(b, l.Close()) })
	return l
}

// BenchmarkUncontended has Lock and Release against SET NX PX and DEL in Lua: two round trips each.
func BenchmarkUncontended(b *testing.B) {
	client := testredis.Start(b).Client(b)
	locker, bare, ctx := newBenchLocker(b, client), newBareLock(client), b.Context()
	b.Run("fencelock", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, lockCycle(ctx, locker, "a"))
		}
	})
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, bare.cycle(ctx, "bare"))
		}
	})
	// One after the other in every iteration, so that what else the machine does meets both alike.
	b.Run("paired", func(b *testing.B) {
		var ours, theirs time.Duration
		for b.Loop() {
			began := time.Now()
			require.NoError(b, lockCycle(ctx, locker, "a"))
			between := time.Now()
			require.NoError(b, bare.cycle(ctx, "bare"))
			ours, theirs = ours+between.Sub(began), theirs+time.Since(between)
		}
		b.ReportMetric(float64(ours)/float64(b.N), "fencelock-ns/op")
		b.ReportMetric(float64(theirs)/float64(b.N), "bare-ns/op")
		b.ReportMetric(float64(ours)/float64(theirs), "ratio")
	})
}

// BenchmarkHandOff has 16 lockers, each with its own connection, contend for one name, and have a turn each iteration.
func BenchmarkHandOff(b *testing.B) {
	const contenders = 16
	server := testredis.Start(b)
	var lockers [contenders]*rwlock.Locker
	for i := range lockers {
		lockers[i] = newBenchLocker(b, server.Client(b))
	}
	turns := make(chan struct{})
	var all sync.WaitGroup
	for _, l := range lockers {
		all.Go(func() {
			for range turns {
				if err := lockCycle(b.Context(), l, "a"); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for b.Loop() {
		turns <- struct{}{}
	}
	close(turns)
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "turns/s")
	var handed, acquired uint64
	for _, l := range lockers {
		s := l.Stats()
		handed, acquired = handed+s.HandedOff, acquired+s.Acquired
	}
	b.ReportMetric(float64(handed)/float64(acquired), "handed-off")
}
