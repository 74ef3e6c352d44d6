package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// A crowd is more waiters of one process and lock than one refresh names: those behind the nearest live by the lease of
// their process.
const crowd = 3 * perRefresh

// lineUpCrowd queues n writers one after the other, and notes in which order they enter.
func (p *process) lineUpCrowd(r *roll, from, n int) (all []*pending) {
	for i := range n {
		all = append(all, p.lineUp("n", rwlock.Write, func(l *rwlock.Lease) { r.enter(from+i, l) }))
	}
	return all
}

// However many wait, one refresh is sent in an interval, and names no more waiters than a call may.
func TestCrowdCostsOneBoundedRefresh(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.process().lock("n", rwlock.Write)
		p, r := w.process(), new(roll)
		all := p.lineUpCrowd(r, 0, crowd)
		w.pass(2 * w.claim())
		calls := 0
		p.link.OnCommand(func(cmd []string) {
			if running(scripts.Refresh)(cmd) {
				calls++
				require.LessOrEqual(w.t, len(cmd), perRefresh+16)
			}
		})
		const intervals = 30
		w.pass(intervals * w.refresh())
		require.GreaterOrEqual(w.t, calls, intervals-1)
		require.LessOrEqual(w.t, calls, intervals+1)
		require.Len(w.t, w.inspect("n").Waiters, crowd, "all are alive")
		w.release(held)
		for _, a := range all {
			a.granted()
		}
		w.onlyTokensLeft()
	})
}

// Whoever waits behind the nearest of its process keeps its place among the waiters of other processes.
func TestCrowdIsServedInTheOrderOfArrival(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.process().lock("n", rwlock.Write)
		p, other, r := w.process(), w.process(), new(roll)
		all := p.lineUpCrowd(r, 0, crowd)
		all = append(all, other.lineUpCrowd(r, len(all), 2)...)
		all = append(all, p.lineUpCrowd(r, len(all), crowd)...)
		all = append(all, other.lineUpCrowd(r, len(all), crowd)...)
		w.pass(3 * w.claim())
		released := time.Now()
		w.release(held)
		for _, a := range all {
			a.granted()
		}
		require.Equal(w.t, span(0, len(all)), r.order)
		require.Zero(w.t, time.Since(released), "nobody waited for a timer")
		w.onlyTokensLeft()
	})
}

// A crowd that dies is out of the way within the lease of a waiter, as a single waiter is, also where the server does
// not know that its connection is gone: one of them may be handed the lock then, for the claim time.
func TestDeadCrowdDropsOutWithinItsLease(t *testing.T) {
	for name, test := range map[string]struct {
		die   func(p *process)
		later bool // the holder leaves when their leases are over
	}{
		"known to be gone":                {(*process).die, false},
		"known to be gone, some time ago": {(*process).die, true},
		"on an open connection":           {func(p *process) { p.link.Blackhole(testredis.Both) }, false},
		"on an open one, some time ago":   {func(p *process) { p.link.Blackhole(testredis.Both) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				held := w.process().lock("n", rwlock.Write)
				p := w.process()
				for range crowd {
					p.acquire(w.ctx, "n", rwlock.Write)
				}
				w.untilWaiting("n", crowd)
				w.pass(2 * w.claim()) // those behind live by the lease of the process now
				last := w.process().queue("n", rwlock.Write)
				test.die(p)
				within := w.claim() + 2*time.Millisecond
				if test.later {
					w.pass(w.claim() + time.Millisecond)
					require.Len(w.t, w.inspect("n").Waiters, 1)
					within = 100 * time.Millisecond
				}
				released := time.Now()
				w.release(held)
				w.release(last.granted())
				require.LessOrEqual(w.t, last.at.Sub(released), within)
			})
		})
	}
}

// After the data is lost, or the process was cut off for longer than its waiters live, all of a crowd are served.
func TestCrowdIsServedAfterALoss(t *testing.T) {
	for name, happen := range map[string]func(w *world, p *process){
		"the server loses its data": func(w *world, _ *process) { w.flushAll() },
		"the process is cut off": func(w *world, p *process) {
			p.link.Refuse()
			p.link.Cut()
			w.pass(2 * w.claim())
			p.link.Restore()
		},
		"its subscription breaks": func(_ *world, p *process) { p.link.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				holder := w.process()
				held := holder.lock("n", rwlock.Write)
				p, r := w.process(), new(roll)
				all := p.lineUpCrowd(r, 0, crowd)
				w.pass(2 * w.claim())
				happen(w, p)
				_ = held.Release(w.ctx) // lost, as like as not
				for _, a := range all {
					a.wait()
					require.NoError(w.t, a.err)
				}
				require.Len(w.t, r.order, crowd)
			})
		})
	}
}

// The readers of a crowd enter together, also those behind the nearest.
func TestCrowdOfReadersEntersTogether(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.process().lock("n", rwlock.Write)
		p := w.process()
		var all []*pending
		for range crowd {
			all = append(all, p.acquire(w.ctx, "n", rwlock.Read))
		}
		w.untilWaiting("n", crowd)
		w.pass(2 * w.claim())
		released := time.Now()
		w.release(held)
		for _, a := range all {
			a.granted()
		}
		require.Less(w.t, time.Since(released), w.refresh(), "all are in together")
		for _, a := range all {
			w.release(a.lease)
		}
		w.onlyTokensLeft()
	})
}

// When all of a crowd give up at the same moment, their releases go together: those that do not fit into what may be on
// its way are released many in a call.
func TestCrowdGivesUpInCallsOfMany(t *testing.T) {
	const waiters = 3_000
	for name, end := range map[string]func(p *process, stop context.CancelFunc){
		"Close":                func(p *process, _ context.CancelFunc) { _ = p.Close() },
		"the end of a context": func(_ *process, stop context.CancelFunc) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				held := w.process().lock("n", rwlock.Write)
				p := w.process()
				p.warmUp() // the scripts are known from now on
				ctx, stop := context.WithCancel(w.ctx)
				defer stop()
				var all []*pending
				for range waiters {
					all = append(all, p.acquire(ctx, "n", rwlock.Write))
				}
				w.untilWaiting("n", waiters)
				calls, named := 0, 0
				p.link.OnCommand(func(cmd []string) {
					if running(scripts.Release)(cmd) {
						const before = 3 + 4 + 3 // EVALSHA, digest, number of keys; keys; arguments that name no other hold
						calls++
						named += len(cmd) - before
					}
				})
				end(p, stop)
				for _, a := range all {
					require.Error(w.t, a.failed())
				}
				w.settle()
				require.Equal(w.t, waiters, named)
				require.LessOrEqual(w.t, calls, waiters/2)
				require.Empty(w.t, w.inspect("n").Waiters)
				w.release(held)
				w.onlyTokensLeft()
			})
		})
	}
}
