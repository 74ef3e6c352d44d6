package rwlock_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// F13: whatever an acquisition takes (a place in the queue, a subscription, goroutines, entries in registries) is given
// back on every way out.

// waysOut end an acquisition of "n" by p, each in its own way. q is another process.
var waysOut = []struct {
	name string
	take func(w *world, p, q *process)
}{
	{"released", func(w *world, p, _ *process) { w.release(p.lock("n", rwlock.Write)) }},
	{"refused at once", func(w *world, p, q *process) {
		held := q.lock("n", rwlock.Write)
		require.ErrorIs(w.t, p.acquireOnce("n"), rwlock.ErrNotAcquired)
		w.release(held)
	}},
	{"handed off", func(w *world, p, q *process) {
		held := q.lock("n", rwlock.Write)
		next := p.queue("n", rwlock.Write)
		w.release(held)
		w.release(next.granted())
	}},
	{"cancelled in the queue", func(w *world, p, q *process) {
		held := q.lock("n", rwlock.Write)
		ctx, cancel := context.WithCancel(w.ctx)
		next := p.acquire(ctx, "n", rwlock.Read)
		w.eventually("it knows that it waits", func() bool { return p.Stats().Waiting == 1 })
		cancel()
		require.ErrorIs(w.t, next.failed(), context.Canceled)
		w.untilWaiting("n", 0)
		w.release(held)
	}},
	{"out of time in the queue", func(w *world, p, q *process) {
		held := q.lock("n", rwlock.Read)
		_, err := p.Lock(w.ctx, "n", rwlock.WithMaxWait(10*time.Millisecond))
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		w.untilWaiting("n", 0)
		w.release(held)
	}},
	{"cancelled before it began", func(w *world, p, _ *process) {
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		_, err := p.Lock(ctx, "n")
		require.ErrorIs(w.t, err, context.Canceled)
	}},
	{"refused for its options", func(w *world, p, _ *process) {
		_, err := p.Lock(w.ctx, "n", rwlock.WithTTL(0))
		require.ErrorIs(w.t, err, rwlock.ErrOption)
	}},
	{"refused by the server", func(w *world, p, _ *process) {
		w.command("SADD", "fencelock:{n}", "foreign")
		_, err := p.Lock(w.ctx, "n")
		require.ErrorIs(w.t, err, rwlock.ErrConflict)
		w.command("DEL", "fencelock:{n}")
	}},
	{"expired", func(w *world, p, _ *process) {
		w.untilOver(p.lock("n", rwlock.Write, rwlock.WithTTL(100*time.Millisecond), rwlock.WithoutRenewal()))
	}},
	{"taken away", func(w *world, p, _ *process) {
		lease := p.lock("n", rwlock.Write)
		w.command("DEL", "fencelock:{n}", "fencelock:{n}:h")
		require.ErrorIs(w.t, lease.Renew(w.ctx), rwlock.ErrLost)
		require.ErrorIs(w.t, lease.Release(w.ctx), rwlock.ErrLost)
	}},
	{"watched by many contexts", func(w *world, p, _ *process) {
		lease := p.lock("n", rwlock.Write)
		for range 100 {
			ctx, cancel := context.WithCancel(w.ctx)
			lease.Context(ctx)
			cancel()
		}
		w.release(lease)
	}},
}

// leftovers is what a process has open: after any number of acquisitions no more than after one.
type leftovers struct {
	goroutines, connections, channels, subscribers int
	held, waiting                                  int
}

func (w *world) leftoversOf(p *process) leftovers {
	w.t.Helper()
	var o leftovers
	w.settle()
	s := p.Stats()
	o.held, o.waiting = s.Held, s.Waiting
	channels := w.command("PUBSUB", "CHANNELS").([]any)
	o.channels = len(channels)
	for _, channel := range channels {
		o.subscribers += int(w.command("PUBSUB", "NUMSUB", channel.(string)).([]any)[1].(int64))
	}
	w.settle()
	o.goroutines, o.connections = runtime.NumGoroutine(), p.link.Conns() // the world's own client among them
	return o
}

func TestF13NothingIsLeftBehind(t *testing.T) {
	for _, place := range everyPlace(t) {
		for _, way := range waysOut {
			t.Run(place.name+"/"+way.name, func(t *testing.T) {
				place.enter(t, func(w *world) {
					p, q := w.process(), w.process()
					waiter := q.lock("subscribe", rwlock.Write)
					next := p.queue("subscribe", rwlock.Write)
					w.release(waiter)
					w.release(next.granted()) // p has its subscription from now on, and keeps that one
					way.take(w, p, q)
					before := w.leftoversOf(p)
					require.Zero(w.t, before.held+before.waiting)
					require.Equal(w.t, 1, before.channels)
					require.Equal(w.t, 1, before.subscribers, "one for the process, however much it waits")
					for range 10 {
						way.take(w, p, q)
					}
					w.eventually("no more is open than before", func() bool {
						after := w.leftoversOf(p)
						more := after.goroutines > before.goroutines
						after.goroutines = before.goroutines
						return after == before && !more
					})
					w.untilOnlyTokens()
					require.NoError(w.t, p.Close())
					w.eventually("the closed locker has no subscription", func() bool {
						return len(w.command("PUBSUB", "CHANNELS").([]any)) == 0
					})
				})
			})
		}
	}
}
