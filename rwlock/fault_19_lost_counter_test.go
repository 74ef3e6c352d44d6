package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// F19: the token counter of an idle lock does not stay for ever, and a counter that is gone, for whatever reason, makes
// no token go back.

// turn takes and gives back the lock and returns its token.
func turn(w *world, p *process, name string) fencing.Token {
	w.Helper()
	lease := p.Take(name, rwlock.Write)
	w.Release(lease)
	return lease.Token()
}

func TestF19TokenLivesForAnHourAfterItsLastUse(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.Process()
		held := p.Take("n", rwlock.Read)
		life := func() time.Duration {
			return time.Duration(w.Command("PTTL", "fencelock:{n}").(int64)) * time.Millisecond
		}
		require.Positive(w, life())
		require.LessOrEqual(w, life(), time.Hour)
		require.Greater(w, life(), time.Hour-testkit.Patience)
		w.Release(held)
		require.Equal(w, []string{"fencelock:{n}"}, w.LockKeys(), "all that an idle lock costs")
		w.OnlyTokensLeft()
	})
}

func TestF19NothingStaysOfAnIdleLock(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		before := turn(w, p, "n")
		w.Mini.Skew(time.Hour - time.Minute)
		require.Greater(w, turn(w, p, "n"), before, "used in time")
		w.Mini.Skew(2*time.Hour - 2*time.Minute)
		require.Len(w, w.LockKeys(), 1, "each use counts anew")
		w.Mini.Skew(2 * time.Hour)
		require.Empty(w, w.LockKeys())
		before += fencing.Token((2 * time.Hour).Microseconds() - 1)
		require.Greater(w, turn(w, p, "n"), before, "an expired counter goes on where the clock is")
	})
}

// Whatever becomes of the counter, the next token is greater than all before it.
func TestF19LostCounterGoesForward(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.Process(), w.Process()
		for _, c := range []struct {
			name string
			lose func()
		}{
			{"nothing happens", func() {}},
			{"FLUSHALL", w.FlushAll},
			{"the counter is deleted", func() { w.Command("DEL", "fencelock:{n}:t") }},
			{"the counter expires", func() { w.Command("PEXPIRE", "fencelock:{n}:t", "0") }},
			{"the counter is back at 1", func() { w.Command("SET", "fencelock:{n}:t", "1") }},
			{"the counter is ahead of the clock", func() {
				ahead := time.Now().Add(time.Hour).UnixMicro()
				w.Command("SET", "fencelock:{n}:t", fencing.Token(ahead).String())
			}},
		} {
			before := turn(w, p, "n")
			c.lose()
			w.Eventually("the server's clock has gone on", func() bool { return time.Now().UnixMicro() > int64(before) })
			after := turn(w, q, "n")
			require.Greater(w, after, before, c.name)
			before = after
			after = turn(w, p, "n")
			require.Greater(w, after, before, "after %s", c.name)
		}
	})
}

// Data lost under a holder: the next holder's token fences the first one off, though the server knows nothing of him.
func TestF19TokenAfterDataLossFencesOffTheHolderBefore(t *testing.T) {
	everywhere(t, func(w *world) {
		first := w.Process().Take("n", rwlock.Write)
		w.FlushAll()
		w.Eventually("the server's clock has gone on", func() bool { return time.Now().UnixMicro() > int64(first.Token()) })
		second := w.Process().Take("n", rwlock.Write)

		var storage fencing.Watermark
		require.NoError(w, storage.Claim(second.Fence()))
		require.ErrorIs(w, storage.Claim(first.Fence()), fencing.ErrStale)
	})
}

// Data that came back from an older copy, as after a restart from a save.
func TestF19RolledBackCounterGoesForward(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		turn(w, p, "n")
		old := w.Mini.Snapshot()
		var last fencing.Token
		for range 100 {
			last = max(last, turn(w, p, "n"))
		}
		w.Pass(2 * time.Millisecond) // so many tokens in no time are ahead of the clock
		w.Mini.Rollback(old)
		require.Greater(w, turn(w, p, "n"), last)
	})
}
