package rwlock_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// durationOf is an attribute of a record.
func durationOf(r slog.Record, key string) (d time.Duration) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			d = a.Value.Duration()
		}
		return a.Key != key
	})
	return d
}

// A server that refuses those who wait, again and again, is told of: by the log, by Trace and by Stats. What it refuses
// for a moment is not. The log says when it is over, and how long it was.
func TestARefusalThatLastsIsTold(t *testing.T) {
	for _, refusal := range []string{
		"OOM command not allowed when used memory > 'maxmemory'.",
		"NOREPLICAS Not enough good replicas to write.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"LOADING Redis is loading the dataset in memory",
	} {
		t.Run(strings.Fields(refusal)[0], func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				var book testkit.Log
				var mu sync.Mutex
				var told []error
				p := w.Process(book.Option(), rwlock.WithTrace(&rwlock.Trace{
					Unreachable: func(_ rwlock.TraceEvent, err error) {
						mu.Lock()
						told = append(told, err)
						mu.Unlock()
					},
				}))
				p.WarmUp()
				w.Mini.Miniredis().SetError(refusal)
				waiting := []*pending{p.Acquire(w.Ctx, "n", rwlock.Write), p.Acquire(w.Ctx, "m", rwlock.Read)}
				w.Pass(900 * time.Millisecond)
				require.Zero(w, p.Stats().Unreachable)
				require.Empty(w, book.Records("refuses"))
				w.Pass(600 * time.Millisecond)
				require.Equal(w, 2, p.Stats().Unreachable)
				w.Pass(8 * time.Second)
				require.Len(w, book.Records("a server refuses its waiters"), 4, "at growing intervals")
				mu.Lock()
				require.NotEmpty(w, told)
				for _, err := range told {
					require.ErrorContains(w, err, refusal)
				}
				mu.Unlock()
				require.Empty(w, book.Records("s again"))

				w.Mini.Miniredis().SetError("")
				for _, a := range waiting {
					w.Release(a.Granted())
				}
				require.Zero(w, p.Stats().Unreachable)
				w.Settle()
				back := book.Records("a server answers its waiters again")
				require.Len(w, back, 1)
				require.Equal(w, slog.LevelInfo, back[0].Level)
				require.InDelta(w, 9.5, durationOf(back[0], "after").Seconds(), 0.1)
			})
		})
	}
}

// One line says that a server is back which did not answer, and for how long it was gone.
func TestTheEndOfAnOutageIsTold(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const gone = 5 * time.Second
		var book testkit.Log
		p := w.Process(book.Option())
		held := p.Take("held", rwlock.Write)
		p.Link.Refuse()
		p.Link.Cut()
		waiting := p.Acquire(w.Ctx, "n", rwlock.Write)
		w.Pass(gone)
		require.Empty(w, book.Records("s again"))
		p.Link.Restore()
		w.Release(waiting.Granted())
		w.Pass(w.TTL)
		require.NoError(w, held.Err())
		for _, about := range []string{
			"a server answers its waiters again", "a server renews leases again",
		} {
			lines := book.Records(about)
			require.Len(w, lines, 1, about)
			require.Equal(w, slog.LevelInfo, lines[0].Level)
			require.Positive(w, durationOf(lines[0], "after"))
			require.LessOrEqual(w, durationOf(lines[0], "after"), gone+w.Refresh())
		}
	})
}

// A client that was closed is not coming back: whoever waits with it ends, and nothing is tried for ever.
func TestAClosedClientEndsTheWaiting(t *testing.T) {
	everywhere(t, func(w *world) {
		other := w.Process()
		held := other.Take("n", rwlock.Write)
		for _, queued := range []bool{true, false} {
			p := w.Process()
			mine := p.Take(fmt.Sprint("mine", queued), rwlock.Write)
			var waiting []*pending
			if queued {
				waiting = append(waiting, p.Queue("n", rwlock.Write), p.Queue("n", rwlock.Read))
				p.Client.Close()
			} else {
				p.Client.Close()
				waiting = append(waiting, p.Acquire(w.Ctx, "n", rwlock.Write), p.Acquire(w.Ctx, "free", rwlock.Read))
			}
			for _, a := range waiting {
				closed := time.Now()
				err := a.Failed()
				require.ErrorIs(w, err, rwlock.ErrNoQuorum)
				require.ErrorIs(w, err, rueidis.ErrClosing)
				require.ErrorContains(w, err, "its client was closed")
				w.RequireLess(a.At.Sub(closed), w.Refresh()+time.Millisecond, "one refresh at the most")
			}
			err := mine.Release(w.Ctx)
			require.ErrorContains(w, err, "its client was closed")
			require.NotContains(w, err.Error(), "not retried yet", "it never is")
			require.NoError(w, p.Close())
		}
		w.Release(held)
	})
}
