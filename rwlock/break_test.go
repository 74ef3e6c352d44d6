package rwlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// requireBroken checks the cause of a lease or of a wait that an operator has ended.
func requireBroken(w *world, err error, why string) {
	w.Helper()
	by := testkit.As[*rwlock.BrokenError](w, err, "%v", err)
	require.Equal(w, &rwlock.BrokenError{By: "operator", Why: why}, by)
}

func operator(w *world) *process { return w.Process(rwlock.WithMeta("operator")) }

// breaks starts a Break.
func breaks(w *world, p *process, name, hold, why string, opts ...rwlock.BreakOption) *testkit.Call {
	return w.Call(w.Ctx, func(ctx context.Context) error { return p.Break(ctx, name, hold, why, opts...) })
}

// A hold that is broken stands until its process has heard of it, and the lock goes to the next waiter then.
func breakEndsALease(w *world) {
	holder, waiter, op := w.Process(), w.Process(), operator(w)
	why := strings.Repeat("y", 256) // as long as it may be
	for _, mode := range bothModes {
		lease := holder.Take("n", mode)
		next := waiter.Queue("n", rwlock.Write)
		hold := w.Inspect("n").Holders[0].Hold
		require.NoError(w, op.Break(w.Ctx, "n", hold, why))
		lost := w.Loss(lease.Err())
		require.Equal(w, rwlock.ReasonBroken, lost.Reason)
		require.Zero(w, lost.Limit)
		requireBroken(w, lost, why)
		require.ErrorContains(w, lost, `lost: broken: broken by "operator": "`+why+`"`)
		granted := next.Granted()
		require.Greater(w, granted.Token(), lease.Token())
		require.ErrorIs(w, op.Break(w.Ctx, "n", hold, why), rwlock.ErrNotHeld)
		w.Release(granted)
	}
	require.Equal(w, rwlock.LostStats{Broken: 2}, holder.Stats().Lost)
	require.EqualValues(w, 2, holder.Stats().Lost.Total())
	if w.Mini == nil { // a minute is long
		w.OnlyTombstonesLeft(time.Minute)
		return
	}
	w.UntilOnlyTokens()
}

// A process that does not renew keeps the lock until its time is over, as it was promised.
func breakWaitsForTheExpiry(w *world) {
	holder, waiter, op := w.Process(rwlock.WithTTL(w.Short)), w.Process(), operator(w)
	lease := holder.Take("n", rwlock.Write)
	hold := w.Inspect("n").Holders[0].Hold
	ended := watch(lease)
	holder.Die()
	next := waiter.Queue("n", rwlock.Read)
	begun := time.Now()
	require.NoError(w, op.Break(w.Ctx, "n", hold, "dead"))
	w.UntilOver(lease)
	w.Release(next.Granted())
	require.True(w, ended.before(time.Now()))
	require.Less(w, time.Since(begun), w.Short+testkit.Patience)
}

// A waiter that is broken leaves the queue, and the others move up.
func breakEndsAWait(w *world) {
	holder, waiter, op := w.Process(), w.Process(), operator(w)
	lease := holder.Take("n", rwlock.Write)
	first := waiter.Queue("n", rwlock.Write)
	hold := w.Inspect("n").Waiters[0].Hold
	second := waiter.Queue("n", rwlock.Read)
	require.NoError(w, op.Break(w.Ctx, "n", hold, "wrong version"))
	err := first.Failed()
	require.ErrorIs(w, err, rwlock.ErrNotAcquired)
	requireBroken(w, err, "wrong version")
	require.NoError(w, lease.Err())
	w.Release(lease)
	w.Release(second.Granted())
	if w.Mini != nil { // a late request of the waiter finds a tombstone for a minute
		w.UntilOnlyTokens()
	}
}

// BreakNow frees the lock although its holder knows nothing of it; the token of the next holder is larger.
func breakNowFreesAtOnce(w *world) {
	holder, next, op := w.Process(), w.Process(), operator(w)
	lease := holder.Take("n", rwlock.Write)
	hold := w.Inspect("n").Holders[0].Hold
	holder.Die()
	require.NoError(w, op.Break(w.Ctx, "n", hold, "stuck", rwlock.BreakNow()))
	later := got(next.TryLock(w.Ctx, "n")).orFail(w)
	require.Greater(w, later.Token(), lease.Token())
	w.Release(later)
}

func TestBreakWaitsForTheExpiryOfADeadProcess(t *testing.T) { everywhere(t, breakWaitsForTheExpiry) }

func TestBreakRefuses(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, p *process, lease *rwlock.Lease) {
		hold := w.Inspect("n").Holders[0].Hold
		refused := func(err error, option, value, rule string) { refusedOption(w.T, err, option, value, rule) }
		refused(p.Break(w.Ctx, "", hold, "why"), "name", "0 bytes", "1 to 512")
		refused(p.Break(w.Ctx, "n", "x", "why"), "hold", `"x"`, "id of a hold")
		refused(p.Break(w.Ctx, "n", hold, ""), "reason", "0 bytes", "1 to 256")
		refused(p.Break(w.Ctx, "n", hold, strings.Repeat("a", 257)), "reason", "257 bytes", "1 to 256")
		require.ErrorIs(w, p.Break(ended(w.Ctx), "n", hold, "why"), context.Canceled)
		require.ErrorIs(w, p.Break(w.Ctx, "other", hold, "why"), rwlock.ErrNotHeld)
		require.NoError(w, lease.Err())
		require.NoError(w, lease.Renew(w.Ctx))
		require.NoError(w, p.Close())
		require.ErrorIs(w, p.Break(w.Ctx, "n", hold, "why"), rwlock.ErrClosed)
	}))
}

// The end of ctx ends the wait, and the hold stays unrenewable; a second Break waits on.
func TestBreakIsRepeated(t *testing.T) {
	inFakeTime(t, func(w *world) {
		holder, op := w.Process(), operator(w)
		lease := holder.Take("n", rwlock.Write)
		hold := w.Inspect("n").Holders[0].Hold
		holder.CutOff(0)
		require.ErrorIs(w, op.Break(w.Soon(100*time.Millisecond), "n", hold, "first"), context.DeadlineExceeded)
		require.NoError(w, lease.Err())
		second := breaks(w, op, "n", hold, "second")
		holder.Restore(0)
		w.UntilOver(lease)
		requireBroken(w, lease.Err(), "first")
		require.NoError(w, second.Result())
		require.ErrorIs(w, op.Break(w.Ctx, "n", hold, "third"), rwlock.ErrNotHeld)

		w.Mini.Stop()
		require.ErrorIs(w, op.Break(w.Ctx, "n", hold, "no server"), rwlock.ErrNoQuorum)
		w.Mini.Recover()
	})
}
