package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// F19: the token counter of an idle lock does not stay for ever, and one that is gone makes no token go back.

// turn takes and gives back the lock and returns its token.
func turn(w *world, p *process, name string) fencing.Token {
	w.Helper()
	lease := p.Take(name, rwlock.Write)
	w.Release(lease)
	return lease.Token()
}

// Whatever becomes of the counter, the next token is greater than all before it.
func TestF19LostCounterGoesForward(t *testing.T) {
	everywhere(t, withTwo(func(w *world, p, q *process) {
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
	}))
}
