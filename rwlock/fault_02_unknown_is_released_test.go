package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F2: the same id again is never "held by another"; and after an unknown outcome a release for that id is always sent.

// scriptsSeen receives the name of every script that reaches the server from now on.
func scriptsSeen(p *process) <-chan scripts.Name {
	seen := make(chan scripts.Name, 100)
	p.Link.OnCommand(func(cmd []string) {
		if name := testkit.ScriptOf(cmd); name != "" {
			seen <- name
		}
	})
	return seen
}

// delayFirst lets the next request arrive late.
func delayFirst(p *process, late time.Duration) {
	first := true
	p.Link.DelayFunc(testredis.ToServer, func() time.Duration {
		if first {
			first = false
			return late
		}
		return 0
	})
}

// The connection broke, but its buffers deliver the acquire after the release has come over the next one.
func TestF02AcquireThatArrivesAfterItsReleaseIsRefused(t *testing.T) {
	testkit.Each(t, map[string]func(w *world, p *process){
		"asked again, granted, released": func(w *world, p *process) { w.Release(p.Take("n", rwlock.Write)) },
		"tried once, unknown": func(w *world, p *process) {
			require.True(w, rwlock.Indeterminate(expect.ErrorOf(p.TryLock(w.Ctx, "n"))))
		},
	}, func(t *testing.T, use func(*world, *process)) {
		for _, late := range []time.Duration{7 * time.Second, 9 * time.Second, 11 * time.Second} {
			inFakeTime(t, withTwo(func(w *world, p, q *process) {
				p.WarmUp()
				seen := scriptsSeen(p)
				delayFirst(p, late) // what the client sends from then on is not late
				start := time.Now()
				use(w, p)
				require.Less(w, time.Since(start), late, "a silent server is found before that")
				w.Pass(late - time.Since(start))
				var order []scripts.Name
				for len(seen) > 0 {
					order = append(order, <-seen)
				}
				require.Equal(w, scripts.Release, order[len(order)-2], "%v", order)
				require.Equal(w, scripts.Acquire, order[len(order)-1], "the acquire was not late: %v", order)
				require.Empty(w, w.Inspect("n").Holders, "a ghost holds the lock")
				require.NoError(w, q.TryOnce("n"))
				w.Pass(2 * w.TTL)
				w.OnlyTokensLeft()
			}))
		}
	})
}
