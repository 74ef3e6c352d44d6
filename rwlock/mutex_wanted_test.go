package rwlock_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// crowd queues n calls in the process, one after the other.
func (w *world) crowd(n int, lock func(context.Context) error) (all []*locking) {
	for range n {
		all = append(all, w.locking(w.ctx, lock))
	}
	return all
}

// Goroutines of a process hand the lock on among themselves without a command, each with a larger token, and the
// context of each ends with its Unlock.
func TestHandingOnWithinAProcessCostsNoCommand(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		p.hasWaited()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.Lock(w.ctx))
		waiting := w.crowd(100, mu.Lock)
		p.link.ResetCalls()
		token, ctx := mu.Token(), mu.Context(w.ctx)
		for _, l := range waiting {
			require.NoError(w.t, ctx.Err())
			require.NoError(w.t, mu.Unlock(w.ctx))
			require.ErrorIs(w.t, context.Cause(ctx), rwlock.ErrReleased)
			require.NoError(w.t, l.result())
			require.Greater(w.t, mu.Token(), token)
			token, ctx = mu.Token(), mu.Context(w.ctx)
			fence, ok := fencing.FromContext(ctx, "n")
			require.True(w.t, ok)
			require.Equal(w.t, fencing.Fence{Resource: "n", Token: token, Mode: rwlock.Write}, fence)
			deadline, ok := fencing.Deadline(ctx, "n")
			require.True(w.t, ok)
			require.InDelta(w.t, w.ttl, time.Until(deadline), float64(w.ttl/10))
		}
		require.Empty(w.t, sent(p.link))
		require.NoError(w.t, mu.Unlock(w.ctx))
		w.onlyTokensLeft()
	})
}

// One who waits in another process is let in after a few more of this one, whether or not its message arrives.
func TestAWaiterElsewhereIsLetIn(t *testing.T) {
	for name, lost := range map[string]bool{"message": false, "message lost": true} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p, q := w.process(), w.process()
				p.hasWaited()
				if lost {
					p.link.DropPushes(func(push []string) bool { return strings.HasSuffix(push[2], "wanted") })
				}
				mu := p.RWMutex("n")
				require.NoError(w.t, mu.Lock(w.ctx))
				first := mu.Token()
				const hold = 100 * time.Millisecond
				waiting := w.crowd(200, mu.Lock)
				began := time.Now()
				other := q.queue("n", rwlock.Write)
				served := 0
				for other.isWaiting() {
					w.pass(hold)
					require.NoError(w.t, mu.Unlock(w.ctx))
					w.settle()
					served++
				}
				took := other.at.Sub(began)
				if lost {
					require.Less(w.t, took, w.ttl/3+(spareSections+2)*hold, "told by the renewal")
					require.Greater(w.t, took, (spareSections+2)*hold)
				} else {
					require.LessOrEqual(w.t, served, spareSections+1)
					require.Greater(w.t, served, 2)
				}
				require.Greater(w.t, other.granted().Token(), first)
				require.True(w.t, waiting[served].isWaiting())
				w.release(other.granted())
				for _, l := range waiting[served-1:] {
					require.NoError(w.t, l.result())
					require.NoError(w.t, mu.Unlock(w.ctx))
				}
				w.onlyTokensLeft()
			})
		})
	}
}

// Two processes with many goroutines take turns, a few grants each.
func TestProcessesTakeTurns(t *testing.T) {
	inFakeTime(t, func(w *world) {
		turns := &turns{end: time.Now().Add(2 * time.Second)}
		var all []*locking
		for i := range turns.counts {
			mu := w.process().RWMutex("n")
			for range 16 {
				all = append(all, w.locking(w.ctx, func(ctx context.Context) error { return turns.take(ctx, i, mu) }))
			}
		}
		for _, l := range all {
			require.NoError(w.t, l.result())
		}
		require.True(w.t, slices.IsSorted(turns.tokens))
		require.Len(w.t, slices.Compact(slices.Clone(turns.tokens)), len(turns.tokens), "each is larger than the last")
		longest, run := 0, 0
		for i := range turns.order {
			if run++; i > 0 && turns.order[i] != turns.order[i-1] {
				run = 1
			}
			if i > 100 { // once both have come
				longest = max(longest, run)
			}
		}
		require.LessOrEqual(w.t, longest, spareSections+17, "and at the end, when the other has left")
		require.InDelta(w.t, turns.counts[0], turns.counts[1], float64(len(turns.order))/10)
		require.Greater(w.t, len(turns.order), 1500, "of 2000 ms")
	})
}

// turns are who held the lock, one after the other, and with which tokens.
type turns struct {
	end    time.Time
	counts [2]int
	order  []int
	tokens []fencing.Token
}

func (t *turns) take(ctx context.Context, process int, mu *rwlock.RWMutex) error {
	for time.Now().Before(t.end) {
		if err := mu.Lock(ctx); err != nil {
			return err
		}
		t.order, t.tokens = append(t.order, process), append(t.tokens, mu.Token())
		t.counts[process]++
		time.Sleep(time.Millisecond)
		if err := mu.Unlock(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Readers that overlap without end in one process do not keep a writer of another one out.
func TestAWriterElsewhereIsLetInBesideAStormOfReaders(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const section, trip = 20 * time.Millisecond, time.Millisecond
		p, q := w.process(), w.process()
		p.hasWaited()
		q.hasWaited()
		mu := p.RWMutex("n")
		end := time.Now().Add(5 * time.Second)
		var all []*locking
		for i := range 64 {
			all = append(all, w.locking(w.ctx, func(ctx context.Context) error {
				time.Sleep(time.Duration(i) * 313 * time.Microsecond)
				for time.Now().Before(end) {
					if err := mu.RLock(ctx); err != nil {
						return err
					}
					time.Sleep(section)
					if err := mu.RUnlock(ctx); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		w.pass(100 * time.Millisecond)
		p.link.Delay(trip / 2)
		q.link.Delay(trip / 2)
		for range 10 {
			time.Sleep(300 * time.Millisecond)
			before := mu.Token()
			began := time.Now()
			lease := q.lock("n", rwlock.Write)
			require.LessOrEqual(w.t, time.Since(began), section+2*trip)
			require.Greater(w.t, lease.Token(), before)
			w.release(lease)
		}
		for _, l := range all {
			require.NoError(w.t, l.result())
		}
		p.link.Delay(0)
		w.onlyTokensLeft()
	})
}

// The loss of the lease ends the section that is in, with its own token, and sends those who wait back to Redis.
func TestALossEndsTheSectionAndSendsTheOthersToRedis(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.Lock(w.ctx))
		waiting := w.crowd(3, mu.Lock)
		require.NoError(w.t, mu.Unlock(w.ctx))
		require.NoError(w.t, waiting[0].result())
		token, ctx := mu.Token(), mu.Context(w.ctx)
		hold := w.inspect("n").Holders[0].Hold
		w.flushAll()
		w.untilClosed(ctx.Done())
		require.Equal(w.t, token, w.loss(context.Cause(ctx)).Token)
		require.True(w.t, waiting[1].isWaiting(), "whoever lost it stands in it")
		require.Equal(w.t, token, w.loss(mu.Unlock(w.ctx)).Token)
		require.NoError(w.t, waiting[1].result())
		require.Greater(w.t, mu.Token(), token)
		require.NotEqual(w.t, hold, w.inspect("n").Holders[0].Hold)
		require.NoError(w.t, mu.Unlock(w.ctx))
		require.NoError(w.t, waiting[2].result())
		require.NoError(w.t, mu.Unlock(w.ctx))
		w.onlyTokensLeft()
	})
}

// Nobody takes the lock over from one whose lease ran out, though no timer has told of it yet.
func TestALockIsNotHandedOnPastItsDeadline(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.process(), w.process()
		mu := p.RWMutex("n")
		require.NoError(w.t, mu.Lock(w.ctx))
		next := w.locking(w.ctx, mu.Lock)
		p.link.Blackhole(testredis.Both)
		w.pass(2 * w.ttl)
		other := q.lock("n", rwlock.Write)
		require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrLost)
		require.True(w.t, next.isWaiting())
		p.link.Restore()
		p.link.Cut()
		w.release(other)
		require.NoError(w.t, next.result())
		require.Greater(w.t, mu.Token(), other.Token())
		require.NoError(w.t, mu.Unlock(w.ctx))
	})
}

// A late writer of the same process is refused after its successor's write.
func TestALateWriterOfTheSameProcessIsStale(t *testing.T) {
	inFakeTime(t, func(w *world) {
		mu := w.process().RWMutex("n")
		var store fencing.Watermark
		write := func(ctx context.Context) error {
			fence, err := fencing.Require(ctx, "n")
			require.NoError(w.t, err)
			return store.Do(context.Background(), fence, func(context.Context) error { return nil })
		}
		require.NoError(w.t, mu.Lock(w.ctx))
		late := mu.Context(w.ctx)
		next := w.locking(w.ctx, mu.Lock)
		require.NoError(w.t, write(late))
		require.NoError(w.t, mu.Unlock(w.ctx))
		require.NoError(w.t, next.result())
		require.NoError(w.t, write(late), "until its successor has written")
		require.NoError(w.t, write(mu.Context(w.ctx)))
		require.ErrorIs(w.t, write(late), fencing.ErrStale)
		require.NoError(w.t, mu.Unlock(w.ctx))
	})
}
