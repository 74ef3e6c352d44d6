package rwlock_test

import (
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F24: a server that does not know a script is sent its source; no number loses a digit on its way through Lua.

// Every script in its turn meets a server that has forgotten it, and is carried out all the same: once, and whole.
func TestF24ForgottenScriptIsSentWhole(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.Process(), w.Process()
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
				s, err := p.Inspect(w.Ctx, "n")
				require.NoError(w, err)
				require.Len(w, s.Holders, 1)
				require.Equal(w, 1, s.Holders[0].Count)
			})
			next := q.Queue("n", rwlock.Write)
			forgotten(scripts.Refresh, q, func() {
				w.Eventually("it refreshes", func() bool { return whole.Load() > 0 })
			})
			forgotten(scripts.Release, p, func() { w.Release(held) })
			w.Release(next.Granted())
		}
		w.OnlyTokensLeft()
	})
}

// A token beyond 1e14 is a decimal integer everywhere, though Lua's own conversion would round it.
func TestF24TokensAreWrittenInFull(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.Process(), w.Process()
		message := make(chan string, 1)
		q.Link.DropPushes(func(push []string) bool {
			if push[0] == "message" {
				select {
				case message <- push[2]:
				default:
				}
			}
			return false
		})
		held := p.Take("n", rwlock.Write)
		next := q.Queue("n", rwlock.Write)
		w.Eventually("it listens for the hand-off", func() bool {
			return len(w.Command("PUBSUB", "CHANNELS").([]any)) == 1
		})
		whole := regexp.MustCompile(`^[0-9]+$`)
		require.Greater(w, uint64(held.Token()), uint64(1e14), "else this test says nothing")

		require.Equal(w, held.Token().String(), w.Command("HGET", "fencelock:{n}", "t"))
		record := strings.Fields(w.Command("HGET", "fencelock:{n}", "w").(string))
		require.Equal(w, w.Inspect("n").Holders[0].Hold, record[0])
		require.Regexp(w, whole, record[1], "the expiry in milliseconds")
		require.Regexp(w, whole, record[2], "milliseconds since")

		w.Release(held)
		after := next.Granted()
		select {
		case m := <-message:
			require.Equal(w, after.Token().String(), strings.Fields(m)[1])
			require.Regexp(w, whole, strings.Fields(m)[2], "the server's microseconds")
		case <-time.After(testkit.Patience):
			w.Fatal("no hand-off")
		}
		require.Equal(w, after.Token(), w.Inspect("n").Token)
		require.Equal(w, after.Token().String(), w.Command("HGET", "fencelock:{n}", "t"))
		w.Release(after)
	})
}

func TestF24TheLastTokenIsWrittenInFull(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.Process()
		w.Release(p.Take("n", rwlock.Write))
		// The last token that there is: 2^53 - 1.
		w.Command("HSET", "fencelock:{n}", "t", "9007199254740990")
		lease := p.Take("n", rwlock.Write)
		require.Equal(w, "9007199254740991", lease.Token().String())
		require.Equal(w, "9007199254740991", w.Command("HGET", "fencelock:{n}", "t"))
		w.Release(lease)
	})
}
