package rwlock_test

import (
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F24: a server that does not know a script any more is sent its source; and no number loses a digit on its way through
// Lua.

// Every script in its turn meets a server that has forgotten it, and is carried out all the same: once, and whole.
func TestF24ForgottenScriptIsSentWhole(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		var whole atomic.Int32 // times that the source was sent
		forgotten := func(name scripts.Name, process *process, do func()) {
			w.t.Helper()
			whole.Store(0)
			process.link.OnCommand(func(cmd []string) {
				if strings.EqualFold(cmd[0], "EVAL") && scriptOf(cmd) == name {
					whole.Add(1)
				}
			})
			w.flushScripts()
			do()
			process.link.OnCommand(nil)
			require.EqualValues(w.t, 1, whole.Load(), "%s", name)
		}
		for range 2 {
			var held *rwlock.Lease
			forgotten(scripts.Acquire, p, func() { held = p.lock("n", rwlock.Write) })
			forgotten(scripts.Renew, p, func() { require.NoError(w.t, held.Renew(w.ctx)) })
			forgotten(scripts.Inspect, p, func() {
				s, err := p.Inspect(w.ctx, "n")
				require.NoError(w.t, err)
				require.Len(w.t, s.Holders, 1)
				require.Equal(w.t, 1, s.Holders[0].Count)
			})
			next := q.queue("n", rwlock.Write)
			forgotten(scripts.Refresh, q, func() {
				w.eventually("it refreshes", func() bool { return whole.Load() > 0 })
			})
			forgotten(scripts.Release, p, func() { w.release(held) })
			w.release(next.granted())
		}
		w.onlyTokensLeft()
	})
}

// The lanes in the background meet it for a whole batch at once.
func TestF24ForgottenScriptsUnderLoad(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		var leases []*rwlock.Lease
		for i := range 300 {
			leases = append(leases, p.lock(strconv.Itoa(i), rwlock.Write))
		}
		for range 20 {
			w.pass(w.ttl / 6)
			w.flushScripts()
		}
		for _, lease := range leases {
			require.NoError(w.t, lease.Err())
		}
		require.Zero(w.t, p.Stats().RenewFailed, "an unknown script is no failure")
		w.release(leases...)
		w.onlyTokensLeft()
	})
}

// A restart forgets scripts, data and connections. What was held is lost; what is asked for next is granted.
func TestF24RestartedServerServesOn(t *testing.T) {
	t.Parallel() // servers start and are waited for
	for _, p := range everyPlace(t)[1:] {
		t.Run(p.name, func(t *testing.T) {
			p.enter(t, func(w *world) {
				p := w.process()
				held := p.lock("n", rwlock.Write)
				w.server.Restart()
				next := p.lock("n", rwlock.Write)
				require.Greater(w.t, next.Token(), held.Token())
				w.untilOver(held)
				require.ErrorIs(w.t, held.Err(), rwlock.ErrLost)
				require.NoError(w.t, next.Err())
				w.release(next)
			})
		})
	}
}

// A token beyond 1e14, written by Lua's own conversion, reads 1.78e+15. It is a decimal integer everywhere: in the
// counter, in the records, in the message of a hand-off, and as it arrives.
func TestF24TokensAreWrittenInFull(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		message := make(chan string, 1)
		q.link.DropPushes(func(push []string) bool {
			if push[0] == "message" {
				select {
				case message <- push[2]:
				default:
				}
			}
			return false
		})
		held := p.lock("n", rwlock.Write)
		next := q.queue("n", rwlock.Write)
		w.eventually("it listens for the hand-off", func() bool {
			return len(w.command("PUBSUB", "CHANNELS").([]any)) == 1
		})
		whole := regexp.MustCompile(`^[0-9]+$`)
		require.Greater(w.t, uint64(held.Token()), uint64(1e14), "else this test says nothing")

		require.Equal(w.t, held.Token().String(), w.command("HGET", "fencelock:{n}", "t"))
		record := strings.Fields(w.command("HGET", "fencelock:{n}", "w").(string))
		require.Equal(w.t, w.inspect("n").Holders[0].Hold, record[0])
		require.Regexp(w.t, whole, record[1], "the expiry in milliseconds")
		require.Regexp(w.t, whole, record[2], "milliseconds since")

		w.release(held)
		after := next.granted()
		select {
		case m := <-message:
			require.Equal(w.t, after.Token().String(), strings.Fields(m)[1])
			require.Regexp(w.t, whole, strings.Fields(m)[2], "the server's microseconds")
		case <-time.After(patience):
			w.t.Fatal("no hand-off")
		}
		require.Equal(w.t, after.Token(), w.inspect("n").Token)
		require.Equal(w.t, after.Token().String(), w.command("HGET", "fencelock:{n}", "t"))
		w.release(after)
	})
}

func TestF24TheLastTokenIsWrittenInFull(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.process()
		w.release(p.lock("n", rwlock.Write))
		// The last token that there is: 2^53 - 1.
		w.command("HSET", "fencelock:{n}", "t", "9007199254740990")
		lease := p.lock("n", rwlock.Write)
		require.Equal(w.t, "9007199254740991", lease.Token().String())
		require.Equal(w.t, "9007199254740991", w.command("HGET", "fencelock:{n}", "t"))
		w.release(lease)
	})
}
