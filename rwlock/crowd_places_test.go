package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// A crowd is more waiters of one process and lock than one refresh names: those behind the nearest live by the lease of
// their process.
const crowd = 3 * perRefresh

// lineUpCrowd queues n writers one after the other, and notes in which order they enter.
func lineUpCrowd(p *process, r *testkit.Order, from, n int) (all []*pending) {
	for i := range n {
		all = append(all, p.LineUp("n", rwlock.Write, func(l *rwlock.Lease) { r.Enter(from+i, l) }))
	}
	return all
}

// However many wait, one refresh is sent in an interval, and names no more waiters than a call may.
func TestCrowdCostsOneBoundedRefresh(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.Process().Take("n", rwlock.Write)
		p, r := w.Process(), new(testkit.Order)
		all := lineUpCrowd(p, r, 0, crowd)
		w.Pass(2 * w.Claim())
		calls := 0
		p.Link.OnCommand(func(cmd []string) {
			if testkit.Running(scripts.Refresh)(cmd) {
				calls++
				require.LessOrEqual(w, len(cmd), perRefresh+16)
			}
		})
		const intervals = 30
		w.Pass(intervals * w.Refresh())
		require.GreaterOrEqual(w, calls, intervals-1)
		require.LessOrEqual(w, calls, intervals+1)
		require.Len(w, w.Inspect("n").Waiters, crowd, "all are alive")
		w.Release(held)
		for _, a := range all {
			a.Granted()
		}
		w.OnlyTokensLeft()
	})
}

// Whoever waits behind the nearest of its process keeps its place among the waiters of other processes.
func TestCrowdIsServedInTheOrderOfArrival(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.Process().Take("n", rwlock.Write)
		p, other, r := w.Process(), w.Process(), new(testkit.Order)
		all := lineUpCrowd(p, r, 0, crowd)
		all = append(all, lineUpCrowd(other, r, len(all), 2)...)
		all = append(all, lineUpCrowd(p, r, len(all), crowd)...)
		all = append(all, lineUpCrowd(other, r, len(all), crowd)...)
		w.Pass(3 * w.Claim())
		released := time.Now()
		w.Release(held)
		for _, a := range all {
			a.Granted()
		}
		require.Equal(w, testkit.Span(0, len(all)), r.Entered)
		require.Zero(w, time.Since(released), "nobody waited for a timer")
		w.OnlyTokensLeft()
	})
}

// A crowd that dies is out of the way within the lease of a waiter, as a single waiter is, also where the server does
// not know that its connection is gone: one of them may be handed the lock then, for the claim time.
func TestDeadCrowdDropsOutWithinItsLease(t *testing.T) {
	for name, test := range map[string]struct {
		die   func(p *process)
		later bool // the holder leaves when their leases are over
	}{
		"known to be gone":                {(*process).Die, false},
		"known to be gone, some time ago": {(*process).Die, true},
		"on an open connection":           {func(p *process) { p.Link.Blackhole(testredis.Both) }, false},
		"on an open one, some time ago":   {func(p *process) { p.Link.Blackhole(testredis.Both) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				held := w.Process().Take("n", rwlock.Write)
				p := w.Process()
				for range crowd {
					p.Acquire(w.Ctx, "n", rwlock.Write)
				}
				w.UntilWaiting("n", crowd)
				w.Pass(2 * w.Claim()) // those behind live by the lease of the process now
				last := w.Process().Queue("n", rwlock.Write)
				test.die(p)
				within := w.Claim() + 2*time.Millisecond
				if test.later {
					w.Pass(w.Claim() + time.Millisecond)
					require.Len(w, w.Inspect("n").Waiters, 1)
					within = 100 * time.Millisecond
				}
				released := time.Now()
				w.Release(held)
				w.Release(last.Granted())
				require.LessOrEqual(w, last.At.Sub(released), within)
			})
		})
	}
}

// After the data is lost, or the process was cut off for longer than its waiters live, all of a crowd are served.
func TestCrowdIsServedAfterALoss(t *testing.T) {
	for name, happen := range map[string]func(w *world, p *process){
		"the server loses its data": func(w *world, _ *process) { w.FlushAll() },
		"the process is cut off": func(w *world, p *process) {
			p.Link.Refuse()
			p.Link.Cut()
			w.Pass(2 * w.Claim())
			p.Link.Restore()
		},
		"its subscription breaks": func(_ *world, p *process) { p.Link.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				holder := w.Process()
				held := holder.Take("n", rwlock.Write)
				p, r := w.Process(), new(testkit.Order)
				all := lineUpCrowd(p, r, 0, crowd)
				w.Pass(2 * w.Claim())
				happen(w, p)
				_ = held.Release(w.Ctx) // lost, as like as not
				for _, a := range all {
					a.Wait()
					require.NoError(w, a.Err)
				}
				require.Len(w, r.Entered, crowd)
			})
		})
	}
}

// The readers of a crowd enter together, also those behind the nearest.
func TestCrowdOfReadersEntersTogether(t *testing.T) {
	inFakeTime(t, func(w *world) {
		held := w.Process().Take("n", rwlock.Write)
		p := w.Process()
		var all []*pending
		for range crowd {
			all = append(all, p.Acquire(w.Ctx, "n", rwlock.Read))
		}
		w.UntilWaiting("n", crowd)
		w.Pass(2 * w.Claim())
		released := time.Now()
		w.Release(held)
		for _, a := range all {
			a.Granted()
		}
		require.Less(w, time.Since(released), w.Refresh(), "all are in together")
		for _, a := range all {
			w.Release(a.Lease)
		}
		w.OnlyTokensLeft()
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
				held := w.Process().Take("n", rwlock.Write)
				p := w.Process()
				p.WarmUp() // the scripts are known from now on
				ctx, stop := context.WithCancel(w.Ctx)
				defer stop()
				var all []*pending
				for range waiters {
					all = append(all, p.Acquire(ctx, "n", rwlock.Write))
				}
				w.UntilWaiting("n", waiters)
				calls, named := 0, 0
				p.Link.OnCommand(func(cmd []string) {
					if testkit.Running(scripts.Release)(cmd) {
						const before = 3 + 4 + 3 // EVALSHA, digest, number of keys; keys; arguments that name no other hold
						calls++
						named += len(cmd) - before
					}
				})
				end(p, stop)
				for _, a := range all {
					require.Error(w, a.Failed())
				}
				w.Settle()
				require.Equal(w, waiters, named)
				require.LessOrEqual(w, calls, waiters/2)
				require.Empty(w, w.Inspect("n").Waiters)
				w.Release(held)
				w.OnlyTokensLeft()
			})
		})
	}
}
