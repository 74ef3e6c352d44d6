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

	"github.com/seed74116694/fencelock/rwlock"
)

// lines are the records of a logbook that are about this.
func (b *logbook) lines(about string) (found []slog.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.records {
		if strings.Contains(r.Message, about) {
			found = append(found, r)
		}
	}
	return found
}

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
				var book logbook
				var mu sync.Mutex
				var told []error
				p := w.process(rwlock.WithLogger(slog.New(&book)), rwlock.WithTrace(&rwlock.Trace{
					Unreachable: func(_ rwlock.TraceEvent, err error) {
						mu.Lock()
						told = append(told, err)
						mu.Unlock()
					},
				}))
				p.warmUp()
				w.mini.Miniredis().SetError(refusal)
				waiting := []*pending{p.acquire(w.ctx, "n", rwlock.Write), p.acquire(w.ctx, "m", rwlock.Read)}
				w.pass(900 * time.Millisecond)
				require.Zero(w.t, p.Stats().Unreachable)
				require.Empty(w.t, book.lines("refuses"))
				w.pass(600 * time.Millisecond)
				require.Equal(w.t, 2, p.Stats().Unreachable)
				w.pass(8 * time.Second)
				require.Len(w.t, book.lines("a server refuses its waiters"), 4, "at growing intervals")
				mu.Lock()
				require.NotEmpty(w.t, told)
				for _, err := range told {
					require.ErrorContains(w.t, err, refusal)
				}
				mu.Unlock()
				require.Empty(w.t, book.lines("s again"))

				w.mini.Miniredis().SetError("")
				for _, a := range waiting {
					w.release(a.granted())
				}
				require.Zero(w.t, p.Stats().Unreachable)
				w.settle()
				back := book.lines("a server answers its waiters again")
				require.Len(w.t, back, 1)
				require.Equal(w.t, slog.LevelInfo, back[0].Level)
				require.InDelta(w.t, 9.5, durationOf(back[0], "after").Seconds(), 0.1)
			})
		})
	}
}

// One line says that a server is back which did not answer, and for how long it was gone.
func TestTheEndOfAnOutageIsTold(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const gone = 5 * time.Second
		var book logbook
		p := w.process(rwlock.WithLogger(slog.New(&book)))
		held := p.lock("held", rwlock.Write)
		p.link.Refuse()
		p.link.Cut()
		waiting := p.acquire(w.ctx, "n", rwlock.Write)
		w.pass(gone)
		require.Empty(w.t, book.lines("s again"))
		p.link.Restore()
		w.release(waiting.granted())
		w.pass(w.ttl)
		require.NoError(w.t, held.Err())
		for _, about := range []string{
			"a server answers its waiters again", "a server renews leases again",
		} {
			lines := book.lines(about)
			require.Len(w.t, lines, 1, about)
			require.Equal(w.t, slog.LevelInfo, lines[0].Level)
			require.Positive(w.t, durationOf(lines[0], "after"))
			require.LessOrEqual(w.t, durationOf(lines[0], "after"), gone+w.refresh())
		}
	})
}

// A client that was closed is not coming back: whoever waits with it ends, and nothing is tried for ever.
func TestAClosedClientEndsTheWaiting(t *testing.T) {
	everywhere(t, func(w *world) {
		other := w.process()
		held := other.lock("n", rwlock.Write)
		for _, queued := range []bool{true, false} {
			p := w.process()
			mine := p.lock(fmt.Sprint("mine", queued), rwlock.Write)
			var waiting []*pending
			if queued {
				waiting = append(waiting, p.queue("n", rwlock.Write), p.queue("n", rwlock.Read))
				p.client.Close()
			} else {
				p.client.Close()
				waiting = append(waiting, p.acquire(w.ctx, "n", rwlock.Write), p.acquire(w.ctx, "free", rwlock.Read))
			}
			for _, a := range waiting {
				closed := time.Now()
				err := a.failed()
				require.ErrorIs(w.t, err, rwlock.ErrNoQuorum)
				require.ErrorIs(w.t, err, rueidis.ErrClosing)
				require.ErrorContains(w.t, err, "its client was closed")
				w.requireLess(a.at.Sub(closed), w.refresh()+time.Millisecond, "one refresh at the most")
			}
			err := mine.Release(w.ctx)
			require.ErrorContains(w.t, err, "not retried yet")
			require.NoError(w.t, p.Close())
		}
		w.release(held)
	})
}
