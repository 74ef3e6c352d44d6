package reentrant_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// Goroutines that share an owner by mistake are not kept apart, and nothing else goes wrong.
func TestGoroutinesThatShareAnOwner(t *testing.T) {
	onServers(t, func(t *testing.T, w *world) {
		p := w.process()
		ctx, _ := owned(t)
		for range 50 {
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					h, err := p.Lock(ctx, "a")
					if err != nil {
						t.Errorf("lock: %v", err)
						return
					}
					for err = h.Release(ctx); errors.Is(err, reentrant.ErrOrder); err = h.Release(ctx) {
						if lost := h.Lease().Err(); lost != nil {
							t.Errorf("the lease of a hold that stands: %v", lost)
						}
					}
					if err != nil {
						t.Errorf("release: %v", err)
					}
				})
			}
			all.Wait()
			require.Empty(t, p.inspect(t, "a").Holders)
		}
	})
}

func TestOneFirstAcquisitionForAll(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world, _ *testredis.Mini) {
		p := w.process()
		stranger, _ := owned(t)
		held := must(t)(p.Lock(stranger, "a"))
		ctx, _ := owned(t)
		holds := make(chan *reentrant.Hold, 8)
		for range cap(holds) {
			go func() {
				h, err := p.Lock(ctx, "a")
				if err != nil {
					t.Errorf("lock: %v", err)
				}
				holds <- h
			}()
		}
		synctest.Wait()
		require.Len(t, p.inspect(t, "a").Waiters, 1, "the others wait for the one in this process")
		require.NoError(t, held.Release(stranger))

		seen := map[int]*reentrant.Hold{}
		for range cap(holds) {
			h := <-holds
			seen[h.Depth()] = h
		}
		require.Len(t, p.inspect(t, "a").Holders, 1)
		for depth := cap(holds); depth > 0; depth-- {
			require.Contains(t, seen, depth)
			require.NoError(t, seen[depth].Release(ctx))
		}
		require.Empty(t, p.inspect(t, "a").Holders)
	})
}

// readInVain waits for a minute to read "a".
func (p *process) readInVain(t *testing.T, ctx context.Context, begun time.Time) {
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := p.RLock(soon, "a")
	require.Equal(t, time.Minute, time.Since(begun))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var refused *rwlock.AcquireError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "a", refused.Name)
	require.Equal(t, rwlock.Read, refused.Mode)
	require.Equal(t, time.Minute, refused.Waited)
}

func TestWaitingForAFirstAcquisitionEndsWithTheContext(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world, _ *testredis.Mini) {
		p := w.process()
		stranger, _ := owned(t)
		held := must(t)(p.Lock(stranger, "a"))
		ctx, _ := owned(t)
		impatient, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		first := make(chan error)
		go func() {
			_, err := p.Lock(impatient, "a")
			first <- err
		}()
		synctest.Wait()

		begun := time.Now()
		_, err := p.TryLock(ctx, "a")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)
		require.ErrorContains(t, err, "another goroutine with the same owner is acquiring it")
		require.Zero(t, time.Since(begun), "a try does not wait")

		p.readInVain(t, ctx, begun)

		// When the first acquisition fails, whoever waits for it makes the next one.
		second := make(chan *reentrant.Hold)
		go func() {
			h, err := p.Lock(ctx, "a")
			if err != nil {
				t.Errorf("lock: %v", err)
			}
			second <- h
		}()
		require.ErrorIs(t, <-first, context.DeadlineExceeded)
		synctest.Wait()
		require.NoError(t, held.Release(stranger))
		h := <-second
		require.Equal(t, 1, h.Depth())
		require.NoError(t, h.Release(ctx))
	})
}

// A hook of the locker may use the reentrant locker: no mutex is held over it.
func TestAHookMayAskTheLocker(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world, mini *testredis.Mini) {
		ctx, _ := owned(t)
		var l *reentrant.Locker
		told := make(chan error, 1)
		link := mini.NewLink()
		remote, err := rwlock.New(link.Client(t), rwlock.WithTrace(&rwlock.Trace{
			Lost: func(rwlock.TraceEvent, *rwlock.LostError) {
				_, err := l.TryLock(ctx, "a")
				told <- err
			},
		}))
		require.NoError(t, err)
		defer func() { _ = remote.Close() }()
		l = reentrant.New(remote)
		outer := must(t)(l.Lock(ctx, "a"))
		link.Blackhole(testredis.Both)
		require.ErrorIs(t, <-told, rwlock.ErrLost)
		require.ErrorIs(t, outer.Release(ctx), rwlock.ErrLost)
	})
}
