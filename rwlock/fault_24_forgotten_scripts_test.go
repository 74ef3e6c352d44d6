package rwlock_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F24: a server that does not know a script is sent its source; no number loses a digit on its way through Lua.

// Every script in its turn meets a server that has forgotten it, and is carried out all the same: once, and whole.
func TestF24ForgottenScriptIsSentWhole(t *testing.T) {
	everywhere(t, withTwo(func(w *world, p, q *process) {
		var whole atomic.Int32 // times that the source was sent
		forgotten := func(name scripts.Name, process *process, do func()) {
			w.Helper()
			whole.Store(0)
			process.Link.OnCommand(func(cmd []string) {
				if strings.EqualFold(cmd[0], "EVAL") && testkit.ScriptOf(cmd) == name {
					whole.Add(1)
				}
			})
			w.FlushScripts()
			do()
			process.Link.OnCommand(nil)
			require.EqualValues(w, 1, whole.Load(), "%s", name)
		}
		for range 2 {
			var held *rwlock.Lease
			forgotten(scripts.Acquire, p, func() { held = p.Take("n", rwlock.Write) })
			forgotten(scripts.Renew, p, func() { require.NoError(w, held.Renew(w.Ctx)) })
			forgotten(scripts.Inspect, p, func() {
				s := expect.NoError(p.Inspect(w.Ctx, "n")).In(w)
				require.Len(w, s.Holders, 1)
				require.Equal(w, 1, s.Holders[0].Count)
			})
			next := q.Queue("n", rwlock.Write)
			forgotten(scripts.Refresh, q, func() { w.Eventually("it refreshes", func() bool { return whole.Load() > 0 }) })
			forgotten(scripts.Release, p, func() { w.Release(held) })
			w.Release(next.Granted())
		}
		w.OnlyTokensLeft()
	}))
}

func TestF24TheLastTokenIsWrittenInFull(t *testing.T) {
	everywhere(t, func(w *world) {
		w.Command("HSET", "fencelock:{n}", "w", testkit.CounterIn("", "9007199254740990"))
		lease := w.Process().Take("n", rwlock.Write)
		require.Equal(w, fencing.MaxToken, lease.Token())
		require.Regexp(w, "^9007199254740991", w.Command("HGET", "fencelock:{n}", "w"))
		w.Release(lease)
	})
}
