package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// F19: the token counter of an idle lock does not stay for ever, and a counter that is gone, for whatever reason, makes
// no token go back.

// turn takes and gives back the lock and returns its token.
func turn(w *world, p *process, name string) fencing.Token {
	w.t.Helper()
	lease := p.lock(name, rwlock.Write)
	w.release(lease)
	return lease.Token()
}

func TestF19TokenLivesForAnHourAfterItsLastUse(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.process()
		held := p.lock("n", rwlock.Read)
		life := func() time.Duration {
			return time.Duration(w.command("PTTL", "fencelock:{n}").(int64)) * time.Millisecond
		}
		require.Positive(w.t, life())
		require.LessOrEqual(w.t, life(), time.Hour)
		require.Greater(w.t, life(), time.Hour-patience)
		w.release(held)
		require.Equal(w.t, []string{"fencelock:{n}"}, w.lockKeys(), "all that an idle lock costs")
		w.onlyTokensLeft()
	})
}

func TestF19NothingStaysOfAnIdleLock(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		before := turn(w, p, "n")
		w.mini.Skew(time.Hour - time.Minute)
		require.Greater(w.t, turn(w, p, "n"), before, "used in time")
		w.mini.Skew(2*time.Hour - 2*time.Minute)
		require.Len(w.t, w.lockKeys(), 1, "each use counts anew")
		w.mini.Skew(2 * time.Hour)
		require.Empty(w.t, w.lockKeys())
		before += fencing.Token((2 * time.Hour).Microseconds() - 1)
		require.Greater(w.t, turn(w, p, "n"), before, "an expired counter goes on where the clock is")
	})
}

// Whatever becomes of the counter, the next token is greater than all before it.
func TestF19LostCounterGoesForward(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		for _, c := range []struct {
			name string
			lose func()
		}{
			{"nothing happens", func() {}},
			{"FLUSHALL", w.flushAll},
			{"the counter is deleted", func() { w.command("DEL", "fencelock:{n}:t") }},
			{"the counter expires", func() { w.command("PEXPIRE", "fencelock:{n}:t", "0") }},
			{"the counter is back at 1", func() { w.command("SET", "fencelock:{n}:t", "1") }},
			{"the counter is ahead of the clock", func() {
				ahead := time.Now().Add(time.Hour).UnixMicro()
				w.command("SET", "fencelock:{n}:t", fencing.Token(ahead).String())
			}},
		} {
			before := turn(w, p, "n")
			c.lose()
			w.eventually("the server's clock has gone on", func() bool { return time.Now().UnixMicro() > int64(before) })
			after := turn(w, q, "n")
			require.Greater(w.t, after, before, c.name)
			before = after
			after = turn(w, p, "n")
			require.Greater(w.t, after, before, "after %s", c.name)
		}
	})
}

// Data lost under a holder: the next holder's token fences the first one off, though the server knows nothing of him.
func TestF19TokenAfterDataLossFencesOffTheHolderBefore(t *testing.T) {
	everywhere(t, func(w *world) {
		first := w.process().lock("n", rwlock.Write)
		w.flushAll()
		w.eventually("the server's clock has gone on", func() bool { return time.Now().UnixMicro() > int64(first.Token()) })
		second := w.process().lock("n", rwlock.Write)

		var storage fencing.Watermark
		require.NoError(w.t, storage.Claim(second.Fence()))
		require.ErrorIs(w.t, storage.Claim(first.Fence()), fencing.ErrStale)
	})
}

// Data that came back from an older copy, as after a restart from a save.
func TestF19RolledBackCounterGoesForward(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		turn(w, p, "n")
		old := w.mini.Snapshot()
		var last fencing.Token
		for range 100 {
			last = max(last, turn(w, p, "n"))
		}
		w.pass(2 * time.Millisecond) // so many tokens in no time are ahead of the clock
		w.mini.Rollback(old)
		require.Greater(w.t, turn(w, p, "n"), last)
	})
}
