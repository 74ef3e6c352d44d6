package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// steppedContext calls at once in the given call of its methods.
type steppedContext struct {
	context.Context
	calls atomic.Int64
	at    int64
	call  func()
}

func (c *steppedContext) step() {
	if c.calls.Add(1) == c.at {
		c.call()
	}
}

func (c *steppedContext) Err() error {
	c.step()
	return c.Context.Err()
}

func (c *steppedContext) Done() <-chan struct{} {
	c.step()
	return c.Context.Done()
}

func (c *steppedContext) Value(key any) any {
	c.step()
	return c.Context.Value(key)
}

var errStep = errors.New("at this step")

// Whatever happens at whatever step of a call that takes several locks, it has all of them or keeps none.
func TestSeveralLocksAtEveryStep(t *testing.T) {
	names := []string{"c", "a", "b"}
	for _, c := range []struct {
		name string
		call func(p *process, cancel context.CancelCauseFunc)
		err  error
	}{
		{"panic", func(*process, context.CancelCauseFunc) { panic(errStep) }, errStep},
		{"end of ctx", func(_ *process, cancel context.CancelCauseFunc) { cancel(errStep) }, errStep},
		{"Close", func(p *process, _ context.CancelCauseFunc) { _ = p.Close() }, rwlock.ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, taken := range testredis.Few([]string{"b"}, []string{"b", "", "a", "c"}) {
				for step, reached := int64(1), true; reached; step += testredis.Few[int64](3, 1) {
					inFakeTime(t, func(w *world) {
						w.Net.Way = time.Millisecond
						p, q := w.Process(), w.Process()
						p.WarmUp()
						ctx, cancel := context.WithCancelCause(w.Ctx)
						defer cancel(nil)
						stepped := &steppedContext{Context: ctx, at: step, call: func() { c.call(p, cancel) }}
						if taken != "" {
							held := q.Take(taken, rwlock.Write)
							time.AfterFunc(50*time.Millisecond, func() { _ = held.Release(context.Background()) })
						}
						all, err := lockAllOrPanic(p, stepped, names)
						reached = stepped.calls.Load() >= step
						switch {
						case err == nil:
							_ = all.Release(w.Ctx) // nothing is left of it after Close
						case reached:
							require.ErrorIs(w, err, c.err, "step %d", step)
						default:
							require.NoError(w, err, "step %d", step)
						}
						w.Pass(100 * time.Millisecond)
						require.Zero(w, p.Stats().Held+p.Stats().Waiting, "step %d", step)
						for _, name := range names {
							require.True(w, isFree(w, name), "%q, held after step %d, with %q taken", name, step, taken)
						}
						require.NoError(w, p.Close())
					})
				}
			}
		})
	}
}

// lockAllOrPanic returns a panic as an error.
func lockAllOrPanic(p *process, ctx context.Context, names []string) (all *rwlock.MultiLease, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %w", panicked.(error))
		}
	}()
	return p.LockAll(ctx, rwlock.Writes(names...))
}

// The attempts of a call that it gives back were never acquired: each lock has one event of its call.
func TestAttemptsThatAreGivenBackAreNotReported(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var trace testkit.Trace
		p, q := w.Process(trace.Option()), w.Process()
		p.WarmUp()
		w.Settle()
		acquired, events := p.Stats().Acquired, len(trace.Events())
		held := q.Take("b", rwlock.Write)
		for range 3 {
			require.ErrorIs(w, errorOf(p.TryLockAll(w.Ctx, rwlock.Writes("a", "b", "c"))), rwlock.ErrNotAcquired)
		}
		w.Settle()
		require.Equal(w, acquired, p.Stats().Acquired)
		require.Zero(w, p.Stats().Lost)
		require.Len(w, trace.Events(), events+3*3)
		for _, e := range trace.Events()[events:] {
			require.Equal(w, "failed", e.What, "once for each lock and call")
		}
		events += 3 * 3

		c := takeAll(p, w.Ctx, rwlock.Writes("a", "b", "c"))
		w.UntilWaiting("b", 1)
		w.Release(held)
		all := c.granted(w)
		require.Equal(w, acquired+3, p.Stats().Acquired)
		require.Equal(w, uint64(1), p.Stats().Contended)
		require.NoError(w, all.Release(w.Ctx))
		w.Settle()
		kinds := map[string]int{}
		for _, e := range trace.Events()[events:] {
			kinds[e.Name+" "+e.What]++
		}
		require.Equal(w, map[string]int{
			"a acquired": 1, "b waiting": 1, "b acquired": 1, "c acquired": 1,
			"a released": 1, "b released": 1, "c released": 1,
		}, kinds)
	})
}

// A lock that ends while the call asks for the rest ends the call: it never returns a lease that is over.
func TestNoCallReturnsALostLock(t *testing.T) {
	const way, limit = 50 * time.Millisecond, time.Second
	outcomes := map[bool]int{}
	for freed := limit - 6*way; freed < limit+2*way; freed += way / 5 {
		inFakeTime(t, func(w *world) {
			p, q := w.ProcessAt(way), w.Process()
			p.WarmUp()
			warm := takeAll(p, w.Ctx, rwlock.Writes("a", "b", "c", "d")).granted(w) // the server knows the script of groups
			require.NoError(w, warm.Release(w.Ctx))
			w.Pass(time.Second)
			held := q.Take("b", rwlock.Write)
			begun := time.Now()
			c := takeAll(p, w.Ctx, rwlock.Writes("a", "b", "c", "d"), rwlock.WithMaxHold(limit))
			time.Sleep(2*way + freed) // since a was granted
			w.Release(held)
			err := c.Result()
			outcomes[err == nil]++
			if err != nil {
				require.Equal(w, "a", w.Loss(err).Name)
				return
			}
			require.Less(w, c.At.Sub(begun), 2*way+limit, "the first lease is over")
		})
	}
	require.Len(t, outcomes, 2, "some were in time")
}

// A single attempt does not wait until a Redis that has just not answered is tried again, for several locks as for one.
func TestTryAllOfARedisThatDoesNotAnswer(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		p.WarmUp()
		w.Settle()
		w.Mini.Freeze()
		require.ErrorIs(w, errorOf(p.TryLock(w.Ctx, "a")), rwlock.ErrNoQuorum)
		begun := time.Now()
		fails(w, errorOf(p.TryLockAll(w.Ctx, rwlock.Writes("a", "b"))), rwlock.ErrNoQuorum, "not retried yet")
		require.Zero(w, time.Since(begun))
		w.Mini.Thaw()
		w.Pass(time.Second)
		require.NoError(w, giveBack(p.TryLockAll(w.Ctx, rwlock.Writes("a", "b"))))
	}))
}

// Eight processes of eight goroutines take random subsets of six locks: every wait ends, and each lock has one writer.
func TestCrowdsTakeSeveralLocks(t *testing.T) {
	for seed := range testredis.Few(1, 2) {
		t.Run(fmt.Sprint("fake time, seed ", seed), func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				w.Net.Way = time.Millisecond
				(&testkit.ManyCrowd{
					Processes: 8, Goroutines: 8, Seed: uint64(seed), Lasts: time.Second / 4, Work: 10 * time.Millisecond,
				}).Run(w)
			})
		})
	}
}
