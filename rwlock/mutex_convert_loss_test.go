package rwlock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		w.command("EVAL", scripts.Source(scripts.Release), "4",
			"fencelock:{n}", "fencelock:{n}:h", "fencelock:{n}:q", "fencelock:{n}:x", "0", hold, "0", "0")
	}, rwlock.ErrNotAcquired, "lost before the conversion ended: gone from Redis"},
	"not renewed": {func(_ *world, p *process, hold string) {
		for range 100 { // more often than it is tried
			p.link.DropNextCommand(func(cmd []string) bool {
				return running(scripts.Renew)(cmd) && slices.Equal(holdsOf(cmd), []string{hold})
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
				p := w.process()
				p.warmUp()
				mu := p.RWMutex("n")
				require.NoError(w.t, mu.RLock(w.ctx))
				require.NoError(w.t, mu.RLock(w.ctx))
				token, ctx := mu.Token(), mu.Context(w.ctx)
				w.pass(time.Second) // the two holds are renewed apart
				upgrade := w.locking(w.ctx, mu.Upgrade)
				for _, h := range w.inspect("n").Holders {
					if h.Mode == rwlock.Write {
						c.lose(w, p, h.Hold)
					}
				}
				err := upgrade.result()
				require.ErrorIs(w.t, err, c.want)
				require.ErrorContains(w.t, err, c.because)
				require.NotErrorIs(w.t, err, context.Canceled)
				require.NotErrorIs(w.t, err, rwlock.ErrLost)
				require.Equal(w.t, token, mu.Token())
				require.NoError(w.t, ctx.Err())
				w.pass(time.Second) // the server has just failed
				for range 2 {
					require.NoError(w.t, mu.RUnlock(w.ctx))
				}
				w.onlyTokensLeft()
			})
		})
	}
}
