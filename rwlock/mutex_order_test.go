package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Goroutines of a process are served as they came, readers between two writers together and by one remote hold.
func TestRWMutexServesInTheOrderOfArrival(t *testing.T) {
	inFakeTime(t, withMutex(func(w *world, _ *process, mu *rwlock.RWMutex) {
		require.NoError(w, mu.Lock(w.Ctx))
		token := mu.Token()
		early := []*testkit.Call{w.Call(w.Ctx, mu.RLock), w.Call(w.Ctx, mu.RLock), w.Call(w.Ctx, mu.RLock)}
		writers := []*testkit.Call{w.Call(w.Ctx, mu.Lock), w.Call(w.Ctx, mu.Lock)}
		late := w.Call(w.Ctx, mu.RLock)
		require.Empty(w, w.Inspect("n").Waiters, "they wait in the process")

		require.NoError(w, mu.Unlock(w.Ctx))
		for _, l := range early {
			require.NoError(w, l.Result())
		}
		require.Len(w, w.Inspect("n").Holders, 1)
		require.Greater(w, mu.Token(), token)
		token = mu.Token()
		require.ErrorIs(w, mu.TryRLock(w.Ctx), rwlock.ErrNotAcquired, "a writer waits")
		for range early {
			require.True(w, writers[0].IsWaiting())
			require.NoError(w, mu.RUnlock(w.Ctx))
		}
		for i, l := range writers {
			require.NoError(w, l.Result())
			require.Greater(w, mu.Token(), token, "each writer has a token of its own")
			token = mu.Token()
			require.True(w, i > 0 || writers[1].IsWaiting())
			require.True(w, late.IsWaiting())
			require.NoError(w, mu.Unlock(w.Ctx))
		}
		require.NoError(w, late.Result())
		require.NoError(w, mu.RUnlock(w.Ctx))
		w.OnlyTokensLeft()
	}))
}

// WithMaxWait spans the waiting in the process and the waiting for Redis.
func TestMaxWaitSpansTheWholeWaiting(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const limit = 5 * time.Second
		p, q := w.Process(), w.Process()
		mu := p.RWMutex("n", rwlock.WithMaxWait(limit))
		require.NoError(w, mu.RLock(w.Ctx)) // whose lease serves no writer
		remote := q.Queue("n", rwlock.Write)
		began := time.Now()
		next := w.Call(w.Ctx, mu.Lock)
		behind := w.Call(w.Ctx, mu.RLock)
		w.Pass(3 * time.Second)
		require.NoError(w, mu.RUnlock(w.Ctx))
		lease := remote.Granted()
		for _, l := range []*testkit.Call{next, behind} {
			err := l.Result()
			require.Equal(w, limit, time.Since(began))
			expect.Fails(w, err, rwlock.ErrNotAcquired, "WithMaxWait limit of 5s")
			require.NotErrorIs(w, err, context.DeadlineExceeded)
			require.Equal(w, limit, testkit.As[*rwlock.AcquireError](w, err).Waited)
		}
		w.Release(lease)
		w.OnlyTokensLeft()
	})
}

// Close fails those that wait in the process as well.
func TestCloseFailsTheWaitersOfAnRWMutex(t *testing.T) {
	inFakeTime(t, withMutex(func(w *world, p *process, mu *rwlock.RWMutex) {
		require.NoError(w, mu.Lock(w.Ctx))
		waiting := []*testkit.Call{w.Call(w.Ctx, mu.Lock), w.Call(w.Ctx, mu.RLock)}
		require.NoError(w, p.Close())
		for _, l := range waiting {
			expect.Fails(w, l.Result(), rwlock.ErrClosed, `"n"`)
		}
		require.NoError(w, mu.Unlock(w.Ctx))
		allFail(w, rwlock.ErrClosed, mu.Lock, mu.TryRLock)
		w.OnlyTokensLeft()
	}))
}

// trouble takes the data and the link away in turns.
func trouble(w *world, p *process, end time.Time) {
	for time.Now().Before(end) {
		time.Sleep(1300 * time.Millisecond)
		w.Mini.FlushAll()
		time.Sleep(900 * time.Millisecond)
		p.Link.Blackhole(testredis.Both)
		time.Sleep(1500 * time.Millisecond)
		p.Link.Restore()
	}
}

// Exclusion in the process does not depend on Redis: not on its data, its links or its speed.
func TestRWMutexExcludesInTheProcessWhateverRedisDoes(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process(rwlock.WithTTL(time.Second))
		mu := p.RWMutex("n")
		var inside, entered, lost atomic.Int64
		end := time.Now().Add(time.Minute)
		work := func(lock, unlock func(context.Context) error, weight int64, least int) {
			for i := 0; time.Now().Before(end); i++ {
				ctx, cancel := context.WithTimeout(w.Ctx, time.Duration(least+i%7)*100*time.Millisecond)
				if lock(ctx) == nil {
					entered.Add(1)
					if n := inside.Add(weight); weight > 1 && n != weight || n > 1000 {
						w.Errorf("%d inside", n)
					}
					time.Sleep(time.Duration(i%11) * 40 * time.Millisecond)
					inside.Add(-weight)
					if errors.Is(unlock(w.Ctx), rwlock.ErrLost) {
						lost.Add(1)
					}
				}
				cancel()
			}
		}
		var all []*testkit.Call
		for i := range 9 {
			all = append(all, w.Call(w.Ctx, func(context.Context) error {
				if i < 3 {
					work(mu.Lock, mu.Unlock, 1000, i)
				} else {
					work(mu.RLock, mu.RUnlock, 1, i)
				}
				return nil
			}))
		}
		trouble(w, p, end)
		for _, l := range all {
			require.NoError(w, l.Result())
		}
		require.Greater(w, entered.Load(), int64(50))
		require.Positive(w, lost.Load())
		allFail(w, rwlock.ErrNotHeld, mu.Unlock, mu.RUnlock)
	})
}

// One who unlocks what it has not locked is told so or takes another's place; the RWMutex stays usable.
func TestUnlockWithoutALockBesideOthers(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		mu := p.RWMutex("n", rwlock.WithLinger(w.TTL))
		const rounds = 200_000
		calls := func(err error) {
			if err != nil && !errors.Is(err, rwlock.ErrNotHeld) {
				w.Error(err)
			}
		}
		var all sync.WaitGroup
		all.Go(func() {
			for range rounds {
				calls(mu.Unlock(w.Ctx))
			}
		})
		all.Go(func() {
			for range rounds {
				calls(mu.Lock(w.Ctx))
				calls(mu.Unlock(w.Ctx))
			}
		})
		all.Wait()
		require.NoError(w, mu.Lock(w.Ctx))
		require.NotZero(w, mu.Token())
		require.NoError(w, mu.Context(w.Ctx).Err())
		require.NoError(w, mu.Unlock(w.Ctx))
	}))
}

// lockCrowd queues n calls in the process, one after the other.
func lockCrowd(w *world, n int, lock func(context.Context) error) (all []*testkit.Call) {
	for range n {
		all = append(all, w.Call(w.Ctx, lock))
	}
	return all
}

// Goroutines of a process hand the lock on without a command, each with a larger token and a context of its own.
func TestHandingOnWithinAProcessCostsNoCommand(t *testing.T) {
	inFakeTime(t, withMutex(func(w *world, p *process, mu *rwlock.RWMutex) {
		hasWaited(p)
		require.NoError(w, mu.Lock(w.Ctx))
		waiting := lockCrowd(w, 100, mu.Lock)
		p.Link.ResetCalls()
		token, ctx := mu.Token(), mu.Context(w.Ctx)
		for _, l := range waiting {
			require.NoError(w, ctx.Err())
			require.NoError(w, mu.Unlock(w.Ctx))
			require.ErrorIs(w, context.Cause(ctx), rwlock.ErrReleased)
			require.NoError(w, l.Result())
			require.Greater(w, mu.Token(), token)
			token, ctx = mu.Token(), mu.Context(w.Ctx)
			require.Equal(w, fencing.Fence{Resource: "n", Token: token, Mode: rwlock.Write}, fenceOf(w, ctx, "n"))
			deadline, ok := fencing.Deadline(ctx, "n")
			require.True(w, ok)
			require.InDelta(w, w.TTL, time.Until(deadline), float64(w.TTL/10))
		}
		require.Empty(w, sent(p.Link))
		require.NoError(w, mu.Unlock(w.Ctx))
		w.OnlyTokensLeft()
	}))
}

// One who waits in another process is let in after a few more of this one, whether or not its message arrives.
func TestAWaiterElsewhereIsLetIn(t *testing.T) {
	eachInFakeTime(t, map[string]bool{"message": false, "message lost": true}, func(w *world, lost bool) {
		p, q := w.Process(), w.Process()
		hasWaited(p)
		if lost {
			p.Link.DropPushes(func(push []string) bool { return strings.HasSuffix(push[2], "wanted") })
		}
		mu := p.RWMutex("n")
		require.NoError(w, mu.Lock(w.Ctx))
		first := mu.Token()
		const hold = 100 * time.Millisecond
		waiting := lockCrowd(w, 200, mu.Lock)
		began := time.Now()
		other := q.Queue("n", rwlock.Write)
		served := 0
		for other.IsWaiting() {
			w.Pass(hold)
			require.NoError(w, mu.Unlock(w.Ctx))
			w.Settle()
			served++
		}
		took := other.At.Sub(began)
		if lost {
			require.Less(w, took, w.TTL/3+(spareSections+2)*hold, "told by the renewal")
			require.Greater(w, took, (spareSections+2)*hold)
		} else {
			require.LessOrEqual(w, served, spareSections+1)
			require.Greater(w, served, 2)
		}
		require.Greater(w, other.Granted().Token(), first)
		require.True(w, waiting[served].IsWaiting())
		w.Release(other.Granted())
		for _, l := range waiting[served-1:] {
			require.NoError(w, l.Result())
			require.NoError(w, mu.Unlock(w.Ctx))
		}
		w.OnlyTokensLeft()
	})
}

// Two processes with many goroutines take turns, a few grants each.
func TestProcessesTakeTurns(t *testing.T) {
	inFakeTime(t, func(w *world) {
		turns := &turns{end: time.Now().Add(2 * time.Second)}
		var all []*testkit.Call
		for i := range turns.counts {
			mu := w.Process().RWMutex("n")
			for range 16 {
				all = append(all, w.Call(w.Ctx, func(ctx context.Context) error { return turns.take(ctx, i, mu) }))
			}
		}
		for _, l := range all {
			require.NoError(w, l.Result())
		}
		require.True(w, slices.IsSorted(turns.tokens))
		require.Len(w, slices.Compact(slices.Clone(turns.tokens)), len(turns.tokens), "each is larger than the last")
		longest, run := 0, 0
		for i := range turns.order {
			if run++; i > 0 && turns.order[i] != turns.order[i-1] {
				run = 1
			}
			if i > 100 { // once both have come
				longest = max(longest, run)
			}
		}
		require.LessOrEqual(w, longest, spareSections+17, "and at the end, when the other has left")
		require.InDelta(w, turns.counts[0], turns.counts[1], float64(len(turns.order))/10)
		require.Greater(w, len(turns.order), 1500, "of 2000 ms")
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
		p, q := w.Process(), w.Process()
		hasWaited(p)
		hasWaited(q)
		mu := p.RWMutex("n")
		end := time.Now().Add(5 * time.Second)
		var all []*testkit.Call
		for i := range 64 {
			all = append(all, w.Call(w.Ctx, func(ctx context.Context) error {
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
		w.Pass(100 * time.Millisecond)
		p.Link.Delay(trip / 2)
		q.Link.Delay(trip / 2)
		for range 10 {
			time.Sleep(300 * time.Millisecond)
			before := mu.Token()
			began := time.Now()
			lease := q.Take("n", rwlock.Write)
			require.LessOrEqual(w, time.Since(began), section+2*trip)
			require.Greater(w, lease.Token(), before)
			w.Release(lease)
		}
		for _, l := range all {
			require.NoError(w, l.Result())
		}
		p.Link.Delay(0)
		w.OnlyTokensLeft()
	})
}

// The loss of the lease ends the section that is in, with its own token, and sends those who wait back to Redis.
func TestALossEndsTheSectionAndSendsTheOthersToRedis(t *testing.T) {
	inFakeTime(t, withMutex(func(w *world, _ *process, mu *rwlock.RWMutex) {
		require.NoError(w, mu.Lock(w.Ctx))
		waiting := lockCrowd(w, 3, mu.Lock)
		require.NoError(w, mu.Unlock(w.Ctx))
		require.NoError(w, waiting[0].Result())
		token, ctx := mu.Token(), mu.Context(w.Ctx)
		hold := w.Inspect("n").Holders[0].Hold
		w.FlushAll()
		w.UntilClosed(ctx.Done())
		require.Equal(w, token, w.Loss(context.Cause(ctx)).Token)
		require.True(w, waiting[1].IsWaiting(), "whoever lost it stands in it")
		require.Equal(w, token, w.Loss(mu.Unlock(w.Ctx)).Token)
		require.NoError(w, waiting[1].Result())
		require.Greater(w, mu.Token(), token)
		require.NotEqual(w, hold, w.Inspect("n").Holders[0].Hold)
		require.NoError(w, mu.Unlock(w.Ctx))
		require.NoError(w, waiting[2].Result())
		require.NoError(w, mu.Unlock(w.Ctx))
		w.OnlyTokensLeft()
	}))
}

// Nobody takes the lock over from one whose lease ran out, though no timer has told of it yet.
func TestALockIsNotHandedOnPastItsDeadline(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		mu := p.RWMutex("n")
		require.NoError(w, mu.Lock(w.Ctx))
		next := w.Call(w.Ctx, mu.Lock)
		p.Link.Blackhole(testredis.Both)
		w.Pass(2 * w.TTL)
		other := q.Take("n", rwlock.Write)
		require.ErrorIs(w, mu.Unlock(w.Ctx), rwlock.ErrLost)
		require.True(w, next.IsWaiting())
		p.Link.Restore()
		p.Link.Cut()
		w.Release(other)
		require.NoError(w, next.Result())
		require.Greater(w, mu.Token(), other.Token())
		require.NoError(w, mu.Unlock(w.Ctx))
	}))
}

// The next write lease of an RWMutex has twice as many tokens as the last one used, where another process waited no
// more than it serves then, and where it lingers enough for that time, but none that would run ahead of the clock.
func TestTheBlockOfTheNextWriteLease(t *testing.T) {
	renews, lingers := rwlock.WithTTL(time.Minute), rwlock.WithLinger(time.Hour)
	type block struct {
		opt  rwlock.MutexOption
		use  func(w *world, mu *rwlock.RWMutex)
		want int
	}
	eachInFakeTime(t, map[string]block{
		"the first":                       {renews, func(*world, *rwlock.RWMutex) {}, 1024},
		"one section":                     {renews, handOns(0), spareSections},
		"many sections":                   {renews, handOns(99), 200},
		"it has lingered":                 {rwlock.WithLinger(time.Second), lingered, 1024},
		"it has lingered for a moment":    {rwlock.WithLinger(100 * time.Microsecond), lingered, 100},
		"another waited":                  {renews, wanted(0), spareSections},
		"another waited, after many":      {renews, wanted(99), spareSections + shortSections},
		"another waited where it lingers": {lingers, wanted(0), spareSections},
	}, func(w *world, c block) {
		p := w.Process()
		hasWaited(p)
		mu := p.RWMutex("n", c.opt)
		c.use(w, mu)
		require.NoError(w, mu.Lock(w.Ctx))
		require.Equal(w, c.want, blockOf(w))
		require.NoError(w, mu.Unlock(w.Ctx))
	})
}

// handOns is the use of a write lease that is handed on so often within the process.
func handOns(n int) func(w *world, mu *rwlock.RWMutex) {
	return func(w *world, mu *rwlock.RWMutex) {
		lockAndHandOn(w, mu, n)
		require.NoError(w, mu.Unlock(w.Ctx))
	}
}

// A process that has used up its block asks Redis for another one: the tokens beyond the block are for other holds.
func TestNoTokenIsTakenBeyondTheBlock(t *testing.T) {
	inFakeTime(t, func(w *world) {
		mu := w.Process().RWMutex("n", rwlock.WithLinger(time.Hour))
		var last fencing.Token
		for range 1024 + 10 {
			require.NoError(w, mu.Lock(w.Ctx))
			require.Greater(w, mu.Token(), last)
			last = mu.Token()
			require.NoError(w, mu.Unlock(w.Ctx))
		}
		other := w.Process().Take("n", rwlock.Write)
		require.Greater(w, other.Token(), last)
		w.Release(other)

		lockAndHandOn(w, mu, 2*1024) // by goroutines that wait, and are handed the lock one by one
		last = mu.Token()
		require.NoError(w, mu.Unlock(w.Ctx))
		other = w.Process().Take("n", rwlock.Write)
		require.Greater(w, other.Token(), last)
		w.Release(other)
	})
}

// wanted is the use of a write lease that is then handed off to another process.
func wanted(handOns int) func(w *world, mu *rwlock.RWMutex) {
	return func(w *world, mu *rwlock.RWMutex) {
		lockAndHandOn(w, mu, handOns)
		other := w.Process().Queue("n", rwlock.Write)
		require.NoError(w, mu.Unlock(w.Ctx))
		w.Release(other.Granted())
	}
}

func lockAndHandOn(w *world, mu *rwlock.RWMutex, n int) {
	require.NoError(w, mu.Lock(w.Ctx))
	for _, l := range lockCrowd(w, n, mu.Lock) {
		require.NoError(w, mu.Unlock(w.Ctx))
		require.NoError(w, l.Result())
	}
}

// lingered is the use of a write lease that lingers until it is given back.
func lingered(w *world, mu *rwlock.RWMutex) {
	handOns(0)(w, mu)
	time.Sleep(time.Minute)
}

// blockOf returns how many tokens the write hold of "n" has.
func blockOf(w *world) int {
	w.Helper()
	var first, last int
	fields := w.Command("HMGET", "fencelock:{n}", "w", "f").([]any)
	_, err := fmt.Sscanf(fmt.Sprint(fields[0].(string)[:16], " ", fields[1]), "%d %d", &last, &first)
	require.NoError(w, err, "%q", fields)
	return last - first + 1
}
