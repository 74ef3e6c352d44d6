package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F26: whoever gives back what he has lost is told so. He has worked for some time without the lock.

type loss struct {
	lose   func(w *world, p *process)
	reason rwlock.Reason
	opts   []rwlock.LockOption
}

// losses end a lease that was not released.
var losses = map[string]loss{
	"expired":      {passTTL, rwlock.ReasonExpired, []rwlock.LockOption{rwlock.WithoutRenewal()}},
	"at its limit": {passTTL, rwlock.ReasonMaxHold, []rwlock.LockOption{rwlock.WithMaxHold(time.Second)}},
	"cut off": {func(w *world, p *process) {
		p.Link.Blackhole(testredis.Both)
		w.Pass(w.TTL)
	}, rwlock.ReasonNotRenewed, nil},
	"taken away, found by a renewal": {func(w *world, _ *process) {
		w.FlushAll()
		w.Pass(w.TTL / 2)
	}, rwlock.ReasonGone, nil},
	"gone, found by the release": {func(w *world, _ *process) { w.FlushAll() }, rwlock.ReasonGone, nil},
	"taken away and held by another": {func(w *world, _ *process) {
		w.FlushAll()
		w.Process().Take("n", rwlock.Write)
	}, rwlock.ReasonGone, nil},
}

func passTTL(w *world, _ *process) { w.Pass(w.TTL) }

func TestF26ReleaseOfALostLeaseSaysSo(t *testing.T) {
	eachInFakeTime(t, losses, func(w *world, c loss) {
		for _, mode := range bothModes {
			p := w.Process()
			lease := p.Take("n", mode, c.opts...)
			token := lease.Token()
			c.lose(w, p)
			before := lease.Err()
			lost := testkit.As[*rwlock.LostError](w, lease.Release(w.Ctx))
			require.Equal(w, c.reason, lost.Reason)
			require.Equal(w, "n", lost.Name)
			require.Equal(w, token, lost.Token)
			if err := lease.Release(w.Ctx); before != nil {
				require.ErrorIs(w, err, rwlock.ErrLost, "and again")
			} else {
				require.NoError(w, err, "the first call was the release")
			}
			others := w.Inspect("n").Holders
			w.Pass(w.TTL)
			require.Equal(w, len(others), len(w.Inspect("n").Holders), "another's hold is not touched")
			w.FlushAll()
		}
	})
}
