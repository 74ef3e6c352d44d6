package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F28: a try is one attempt and ends with its context; Lock waits until its context ends, and no less.

type obstacle struct{ begin, end func(w *world, p *process) }

// troubles keep a server from answering p.
var troubles = map[string]obstacle{
	"the server hangs":      {func(w *world, _ *process) { w.Mini.Freeze() }, thaw},
	"replies do not arrive": {func(_ *world, p *process) { p.Link.Hold(testredis.ToClient) }, restore},
	"packets are dropped":   {func(_ *world, p *process) { p.Link.Blackhole(testredis.Both) }, restore},
	"the connection is gone and dialling hangs": {
		func(_ *world, p *process) { p.Link.Hold(testredis.Both); p.Link.Cut() }, restore,
	},
	"the connection is gone and the next one hangs": {func(w *world, p *process) {
		w.Pass(100 * time.Millisecond) // else the client is taken to be connected, and the caller's own dial is tried
		w.Mini.Freeze()
		p.Link.Cut()
	}, thaw},
	"the server is down": {func(w *world, _ *process) { w.Mini.Stop() }, func(w *world, _ *process) { w.Mini.Recover() }},
}

// restore and thaw end a trouble.
func restore(_ *world, p *process) { p.Link.Restore() }
func thaw(w *world, _ *process)    { w.Mini.Thaw() }

// Where nothing answers, a try ends with the patience of its client, however long its context lasts.
func TestF28TryEndsWithThePatienceOfItsClient(t *testing.T) {
	o := testredis.ClientOption("")
	patience := 2*o.Dialer.KeepAlive + o.ConnWriteTimeout + o.Dialer.Timeout
	for name, trouble := range troubles {
		inFakeTime(t, withOne(func(w *world, p *process) {
			trouble.begin(w, p)
			w.Settle()
			start := time.Now()
			require.ErrorIs(w, p.TryOnce("n"), rwlock.ErrNoQuorum, name)
			require.LessOrEqual(w, time.Since(start), patience, name)
			trouble.end(w, p)
		}))
	}
}

func TestF28TryIsOneAttempt(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.Process().Take("n", rwlock.Write)
		p := w.Process()
		require.ErrorIs(w, p.TryOnce("n"), rwlock.ErrNotAcquired) // the script is known from now on
		p.Link.ResetCalls()
		require.ErrorIs(w, p.TryOnce("n"), rwlock.ErrNotAcquired)
		require.Equal(w, 1, p.Link.Calls("EVALSHA")+p.Link.Calls("EVAL"))
		require.Empty(w, w.Inspect("n").Waiters)
	})
}

// Lock goes on through every trouble for as long as it may, and gets in when the trouble is over.
func TestF28LockOutlastsTrouble(t *testing.T) {
	eachInFakeTime(t, troubles, func(w *world, trouble obstacle) {
		p := w.Process()
		trouble.begin(w, p)
		const long = 2 * time.Minute
		start := time.Now()
		bounded := p.Acquire(w.Soon(long), "n", rwlock.Write)
		unbounded := p.Acquire(w.Ctx, "n", rwlock.Write)
		w.Pass(long - time.Millisecond)
		require.True(w, bounded.IsWaiting())
		w.Pass(time.Millisecond)
		err := bounded.Failed()
		require.Equal(w, long, bounded.At.Sub(start))
		expect.Fails(w, err, rwlock.ErrNoQuorum, context.DeadlineExceeded)
		require.True(w, unbounded.IsWaiting())

		trouble.end(w, p)
		over := time.Now()
		w.Release(unbounded.Granted())
		require.LessOrEqual(w, unbounded.At.Sub(over), 5*time.Second, "one backoff, dial and refresh")
	})
}

// A TryDo that does not get the lock is no failure; everything else is.
func TestF28TryDoRunsOnceOrNot(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, other := w.Process(), w.Process()
		type doing = func(context.Context, string, func(context.Context) error, ...rwlock.LockOption) (bool, error)
		for mode, do := range map[rwlock.Mode]doing{rwlock.Write: p.TryDo, rwlock.Read: p.TryRDo} {
			failure := errors.New("the work failed")
			work := func(ctx context.Context) error {
				require.Equal(w, mode, expect.NoError(fencing.Require(ctx, "n")).In(w).Mode)
				require.NoError(w, ctx.Err())
				return failure
			}
			ran, err := do(w.Ctx, "n", work)
			require.True(w, ran)
			require.Equal(w, failure, err)

			held := other.Take("n", rwlock.Write)
			ran, err = do(w.Ctx, "n", work)
			require.False(w, ran)
			require.NoError(w, err)
			w.Release(held)

			ran, err = do(ended(w.Ctx), "n", work)
			require.False(w, ran)
			require.ErrorIs(w, err, context.Canceled)

			ran, err = do(w.Ctx, "n", nil)
			require.False(w, ran)
			require.ErrorIs(w, err, rwlock.ErrOption)
			require.Empty(w, w.Inspect("n").Holders)
		}
	})
}
