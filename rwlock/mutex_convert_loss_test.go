package rwlock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// upgradeLosses are the ways in which the write hold of an upgrade is lost before it is taken, and what is told then.
var upgradeLosses = map[string]struct {
	lose    func(w *world, p *process, hold string)
	want    error
	because string
}{
	"taken away": {func(w *world, _ *process, hold string) {
		w.Command("EVAL", scripts.Source(scripts.Release), "4",
			"fencelock:{n}", "fencelock:{n}:h", "fencelock:{n}:q", "fencelock:{n}:x", "0", hold, "0", "0")
	}, rwlock.ErrNotAcquired, "lost before the conversion ended: gone from Redis"},
	"not renewed": {func(_ *world, p *process, hold string) {
		for range 100 { // more often than it is tried
			p.Link.DropNextCommand(func(cmd []string) bool {
				return testkit.Running(scripts.Renew)(cmd) && slices.Equal(testkit.HoldsOf(cmd), []string{hold})
			})
		}
	}, rwlock.ErrNoQuorum, "lost before the conversion ended: no renewal was confirmed in time"},
}

// The write hold of an upgrade may be lost while other readers of the process are yet to leave. That is neither the end
// of the caller's context nor a loss of what it has: it goes on reading.
func TestAnUpgradeWhoseNewHoldIsLost(t *testing.T) {
	for name, c := range upgradeLosses {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.Process()
				p.WarmUp()
				mu := p.RWMutex("n")
				require.NoError(w, mu.RLock(w.Ctx))
				require.NoError(w, mu.RLock(w.Ctx))
				token, ctx := mu.Token(), mu.Context(w.Ctx)
				w.Pass(time.Second) // the two holds are renewed apart
				upgrade := w.Call(w.Ctx, mu.Upgrade)
				for _, h := range w.Inspect("n").Holders {
					if h.Mode == rwlock.Write {
						c.lose(w, p, h.Hold)
					}
				}
				err := upgrade.Result()
				require.ErrorIs(w, err, c.want)
				require.ErrorContains(w, err, c.because)
				require.NotErrorIs(w, err, context.Canceled)
				require.NotErrorIs(w, err, rwlock.ErrLost)
				require.Equal(w, token, mu.Token())
				require.NoError(w, ctx.Err())
				w.Pass(time.Second) // the server has just failed
				for range 2 {
					require.NoError(w, mu.RUnlock(w.Ctx))
				}
				w.OnlyTokensLeft()
			})
		})
	}
}
