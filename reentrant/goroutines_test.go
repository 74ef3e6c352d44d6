package reentrant_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestOneFirstAcquisitionForAll(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := start(w)
		stranger, _ := owned(w)
		held := must(w)(p.Lock(stranger, "a"))
		ctx, _ := owned(w)
		holds := make(chan *reentrant.Hold, 8)
		for range cap(holds) {
			go func() {
				h, err := p.Lock(ctx, "a")
				if err != nil {
					w.Errorf("lock: %v", err)
				}
				holds <- h
			}()
		}
		synctest.Wait()
		require.Len(w, p.inspect("a").Waiters, 1, "the others wait for the one in this process")
		require.NoError(w, held.Release(stranger))

		seen := map[int]*reentrant.Hold{}
		for range cap(holds) {
			h := <-holds
			seen[h.Depth()] = h
		}
		require.Len(w, p.inspect("a").Holders, 1)
		for depth := cap(holds); depth > 0; depth-- {
			require.Contains(w, seen, depth)
			require.NoError(w, seen[depth].Release(ctx))
		}
		require.Empty(w, p.inspect("a").Holders)
	})
}

// readInVain waits for a minute to read "a".
func (p *process) readInVain(w *world, ctx context.Context, begun time.Time) {
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := p.RLock(soon, "a")
	require.Equal(w, time.Minute, time.Since(begun))
	require.ErrorIs(w, err, context.DeadlineExceeded)
	var refused *rwlock.AcquireError
	require.ErrorAs(w, err, &refused)
	require.Equal(w, "a", refused.Name)
	require.Equal(w, rwlock.Read, refused.Mode)
	require.Equal(w, time.Minute, refused.Waited)
}

func TestWaitingForAFirstAcquisitionEndsWithTheContext(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := start(w)
		stranger, _ := owned(w)
		held := must(w)(p.Lock(stranger, "a"))
		ctx, _ := owned(w)
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
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		require.ErrorContains(w, err, "another goroutine with the same owner is acquiring it")
		require.Zero(w, time.Since(begun), "a try does not wait")

		p.readInVain(w, ctx, begun)

		// When the first acquisition fails, whoever waits for it makes the next one.
		second := make(chan *reentrant.Hold)
		go func() {
			h, err := p.Lock(ctx, "a")
			if err != nil {
				w.Errorf("lock: %v", err)
			}
			second <- h
		}()
		require.ErrorIs(w, <-first, context.DeadlineExceeded)
		synctest.Wait()
		require.NoError(w, held.Release(stranger))
		h := <-second
		require.Equal(w, 1, h.Depth())
		require.NoError(w, h.Release(ctx))
	})
}

// A hook of the locker may use the reentrant locker: no mutex is held over it.
func TestAHookMayAskTheLocker(t *testing.T) {
	inFakeTime(t, func(w *world) {
		ctx, _ := owned(w)
		var l *reentrant.Locker
		told := make(chan error, 1)
		remote := w.Process(rwlock.WithTrace(&rwlock.Trace{
			Lost: func(context.Context, rwlock.TraceEvent, *rwlock.LostError) {
				_, err := l.TryLock(ctx, "a")
				told <- err
			},
		}))
		l = reentrant.New(remote.Locker)
		outer := must(w)(l.Lock(ctx, "a"))
		remote.Link.Blackhole(testredis.Both)
		require.ErrorIs(w, <-told, rwlock.ErrLost)
		require.ErrorIs(w, outer.Release(ctx), rwlock.ErrLost)
	})
}
