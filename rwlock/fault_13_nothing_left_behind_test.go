package rwlock_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// F13: whatever an acquisition takes (a place, a subscription, goroutines, entries) is given back on every way out.

// waysOut end an acquisition of "n" by p, each in its own way. q is another process.
var waysOut = []struct {
	name string
	take func(w *world, p, q *process)
}{
	{"released", func(w *world, p, _ *process) { w.Release(p.Take("n", rwlock.Write)) }},
	{"refused at once", func(w *world, p, q *process) {
		held := q.Take("n", rwlock.Write)
		require.ErrorIs(w, p.TryOnce("n"), rwlock.ErrNotAcquired)
		w.Release(held)
	}},
	{"handed off", func(w *world, p, q *process) {
		held := q.Take("n", rwlock.Write)
		w.Release(p.Queue("n", rwlock.Write).GrantedAfter(held))
	}},
	{"cancelled in the queue", func(w *world, p, q *process) {
		held := q.Take("n", rwlock.Write)
		ctx, cancel := context.WithCancel(w.Ctx)
		next := p.Acquire(ctx, "n", rwlock.Read)
		w.Eventually("it knows that it waits", func() bool { return p.Stats().Waiting == 1 })
		cancel()
		require.ErrorIs(w, next.Failed(), context.Canceled)
		w.UntilWaiting("n", 0)
		w.Release(held)
	}},
	{"out of time in the queue", func(w *world, p, q *process) {
		held := q.Take("n", rwlock.Read)
		_, err := p.Lock(w.Ctx, "n", rwlock.WithMaxWait(10*time.Millisecond))
		require.ErrorContains(w, err, "WithMaxWait", "a busy server may not have answered by then")
		w.UntilWaiting("n", 0)
		w.Release(held)
	}},
	{"cancelled before it began", func(w *world, p, _ *process) {
		require.ErrorIs(w, expect.ErrorOf(p.Lock(ended(w.Ctx), "n")), context.Canceled)
	}},
	{"refused for its options", func(w *world, p, _ *process) {
		require.ErrorIs(w, expect.ErrorOf(p.Lock(w.Ctx, "n", rwlock.WithTTL(0))), rwlock.ErrOption)
	}},
	{"refused by the server", func(w *world, p, _ *process) {
		w.Command("SADD", "fencelock:{n}", "foreign")
		require.ErrorIs(w, expect.ErrorOf(p.Lock(w.Ctx, "n")), rwlock.ErrConflict)
		w.Command("DEL", "fencelock:{n}")
	}},
	{"expired", func(w *world, p, _ *process) {
		w.UntilOver(p.Take("n", rwlock.Write, rwlock.WithTTL(100*time.Millisecond), rwlock.WithoutRenewal()))
	}},
	{"taken away", func(w *world, p, _ *process) {
		lease := p.Take("n", rwlock.Write)
		w.Command("DEL", "fencelock:{n}", "fencelock:{n}:h")
		allFail(w, rwlock.ErrLost, lease.Renew, lease.Release)
	}},
	{"watched by many contexts", func(w *world, p, _ *process) {
		lease := p.Take("n", rwlock.Write)
		for range 100 {
			ctx, cancel := context.WithCancel(w.Ctx)
			lease.Context(ctx)
			cancel()
		}
		w.Release(lease)
	}},
}

// leftovers is what a process has open: after any number of acquisitions no more than after one.
type leftovers struct {
	goroutines, connections, channels, subscribers int
	held, waiting                                  int
}

func leftoversOf(w *world, p *process) leftovers {
	w.Helper()
	var o leftovers
	w.Settle()
	s := p.Stats()
	o.held, o.waiting = s.Held, s.Waiting
	channels := w.Command("PUBSUB", "CHANNELS").([]any)
	o.channels = len(channels)
	for _, channel := range channels {
		o.subscribers += int(w.Command("PUBSUB", "NUMSUB", channel.(string)).([]any)[1].(int64))
	}
	w.Settle()
	o.goroutines, o.connections = runtime.NumGoroutine(), p.Link.Conns() // the world's own client among them
	return o
}

// senders is how many goroutines two processes may start for requests that overlap, and keep: three each.
const senders = 2 * 3

func TestF13NothingIsLeftBehind(t *testing.T) {
	for _, place := range testkit.Places(t) {
		for _, way := range waysOut {
			t.Run(place.Name+"/"+way.name, func(t *testing.T) {
				place.Enter(t, observed(func(w *world) {
					p, q := w.Process(), w.Process()
					waiter := q.Take("subscribe", rwlock.Write)
					next := p.Queue("subscribe", rwlock.Write)
					w.Release(waiter)
					w.Release(next.Granted()) // p has its subscription from now on, and keeps that one
					way.take(w, p, q)
					before := leftoversOf(w, p)
					require.Zero(w, before.held+before.waiting)
					require.Equal(w, 1, before.channels)
					require.Equal(w, 1, before.subscribers, "one for the process, however much it waits")
					for range 10 {
						way.take(w, p, q)
					}
					w.Eventually("no more is open than before", func() bool {
						after := leftoversOf(w, p)
						more := after.goroutines > before.goroutines+senders
						after.goroutines = before.goroutines
						return after == before && !more
					})
					w.UntilOnlyTokens()
					require.NoError(w, p.Close())
					w.Eventually("the closed locker has no subscription", func() bool {
						return len(w.Command("PUBSUB", "CHANNELS").([]any)) == 0
					})
				}))
			})
		}
	}
}
