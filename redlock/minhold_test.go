package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// A quorum keeps the name for the minimum, whichever master is missing when the lease is taken, released or asked for.
func TestMinHoldOverAQuorum(t *testing.T) {
	const least = 30 * time.Second
	eachInFakeTime(t, 3, map[string]struct{ before, between, after int }{
		"all masters":                 {-1, -1, -1},
		"one is missing":              {0, 0, 0},
		"another one is missing then": {0, 0, 1},
		"one is missing at the end":   {-1, 1, -1},
	}, func(w *world, c struct{ before, between, after int }) {
		p, q := w.Process(), w.Process()
		p.WarmUp()
		q.WarmUp()
		missing := func(p *process, master int) {
			p.Restore(0, 1, 2)
			if master >= 0 {
				p.CutOff(master)
			}
		}
		missing(p, c.before)
		lease := p.Take("n", rwlock.Write, rwlock.WithMinHold(least))
		granted := time.Now()
		missing(p, c.between)
		_ = lease.Release(w.Ctx)
		missing(p, -1)
		w.Pass(5 * time.Second)
		missing(q, c.after)
		require.Error(w, expect.ErrorOf(q.TryLock(w.Ctx, "n")))
		missing(q, -1)
		waits := q.Acquire(w.Ctx, "n", rwlock.Write)
		next := waits.Granted()
		require.GreaterOrEqual(w, waits.At.Sub(granted), least-10*time.Millisecond)
		require.Less(w, waits.At.Sub(granted), least+3*time.Second)
		w.Release(next)
	})
}

// A lease is released while the answer of one master is open: a different one each time. The holds stand for their
// minimum there too, and not for a TTL, in which no writer would find a quorum.
func TestTheMinimumEndsOnAMasterThatAnswersLate(t *testing.T) {
	const least = 300 * time.Millisecond
	inFakeTime(t, 3, func(w *world) {
		p, q := w.Process(), w.Process()
		warmUp(p, q)
		for late := range 3 {
			p.Links[late].DelayDir(testredis.ToClient, 20*time.Millisecond)
			w.Release(p.Take("n", rwlock.Read, rwlock.WithMinHold(least)))
			p.Links[late].Delay(0)
		}
		began := time.Now()
		w.Release(q.Take("n", rwlock.Write))
		require.Less(w, time.Since(began), 2*least)
	})
}

// A TTL beyond the quarantine is refused: a master that forgets the hold would vote before it has ended.
func TestSetTTLOverAQuorum(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.Process(redlock.WithQuarantine(time.Minute))
		lease := p.Take("n", rwlock.Write)
		require.Contains(w, testkit.As[*rwlock.OptionError](w, lease.SetTTL(w.Ctx, time.Minute+1)).Rule, "quarantine")
		w.Pass(100 * time.Millisecond) // the last answers of the acquisition
		p.CutOff(1)
		require.NoError(w, lease.SetTTL(w.Ctx, time.Minute))
		require.Greater(w, time.Until(lease.Deadline()), 59*time.Second)
		p.Restore(1)
		w.Pass(time.Minute)
		require.NoError(w, lease.SetTTL(w.Ctx, w.TTL))
		require.LessOrEqual(w, time.Until(lease.Deadline()), w.TTL)
		w.Pass(100 * time.Millisecond)
		p.CutOff(0, 2)
		require.ErrorIs(w, lease.SetTTL(w.Ctx, w.TTL/2), rwlock.ErrNoQuorum)
		require.LessOrEqual(w, time.Until(lease.Deadline()), w.TTL/2)
		w.UntilOver(lease)
		require.Equal(w, rwlock.ReasonNotRenewed, w.Loss(lease.Err()).Reason)
	})
}

// A quorum grants the lock, and one of it fails. The third master, a moment late, is asked to renew its grant.
func TestALateGrantTakesPartInARenewal(t *testing.T) {
	const late = 20 * time.Millisecond
	calls := map[string]func(context.Context, *rwlock.Lease) error{
		"Renew":  func(ctx context.Context, lease *rwlock.Lease) error { return lease.Renew(ctx) },
		"SetTTL": func(ctx context.Context, lease *rwlock.Lease) error { return lease.SetTTL(ctx, time.Minute) },
		"Detach": func(ctx context.Context, lease *rwlock.Lease) error {
			return expect.ErrorOf(lease.Detach(ctx, rwlock.WithTTL(time.Minute)))
		},
	}
	for how, fail := range map[string]func(link *testredis.Link){
		"refuses": func(link *testredis.Link) { link.Refuse(); link.Cut() },
		"silent":  func(link *testredis.Link) { link.Blackhole(testredis.Both) },
	} {
		for name, call := range calls {
			runInFakeTime(t, name+", one master "+how, 3, func(w *world) {
				p := warm(w, redlock.WithQuarantine(time.Minute))
				w.Pass(time.Second)
				p.Links[2].Delay(late)
				lease := p.Take("n", rwlock.Write)
				fail(p.Links[1])
				require.NoError(w, call(w.Ctx, lease))
			})
		}
	}
}

// A grant that comes while a round is under way is no answer to it. One with another token is not renewed.
func TestALateGrantConfirmsNoRenewal(t *testing.T) {
	counts := map[string]time.Duration{"the token of the lease": 0, "a larger token": time.Hour}
	eachInFakeTime(t, 3, counts, func(w *world, counted time.Duration) {
		p := warm(w)
		w.Pass(time.Second)
		before := strconv.FormatInt(time.Now().Add(counted).UnixMicro(), 10)
		w.Minis[2].Miniredis().HSet("fencelock:{n}", "w", testkit.CounterIn("", before))
		p.Links[2].Delay(20 * time.Millisecond)
		lease := p.Take("n", rwlock.Write)
		p.Links[1].Blackhole(testredis.Both)
		p.Links[2].DelayDir(testredis.ToServer, time.Hour) // but for what is on its way
		require.Equal(w, 1, testkit.As[*rwlock.QuorumError](w, lease.SetTTL(w.Ctx, w.TTL/4)).Got)
	})
}

// At each tick processes whose clocks agree ask at the same moment. Each gets the master that is next to it, and then
// all single attempts are refused. The recipe of docs/integrations.md waits in the queue, for less than the minimum
// hold: no tick is missed, and none runs twice.
func TestOncePerTick(t *testing.T) {
	for _, masters := range testredis.Few([]int{3}, []int{3, 5}) {
		for _, way := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond} {
			inFakeTime(t, masters, func(w *world) {
				require.Equal(w, map[int32]int{0: ticks}, runsPerTick(w, way, func(p *process, work func(context.Context) error) {
					if _, err := p.TryDo(w.Ctx, "job", work, rwlock.WithMinHold(time.Second)); err != nil {
						w.Error(err)
					}
				}))
				require.Equal(w, map[int32]int{1: ticks}, runsPerTick(w, way, func(p *process, work func(context.Context) error) {
					err := p.Do(w.Ctx, "job", work, rwlock.WithMinHold(time.Second), rwlock.WithMaxWait(500*time.Millisecond))
					if err != nil && !errors.Is(err, rwlock.ErrNotAcquired) {
						w.Error(err)
					}
				}))
			})
		}
	}
}

const ticks = 10

// runsPerTick has a process next to each master ask at each tick, and counts ticks by their runs. way is how long a
// message to another master takes.
func runsPerTick(
	w *world, way time.Duration, ask func(p *process, work func(context.Context) error),
) map[int32]int {
	processes := make([]*process, len(w.Minis))
	for i := range processes {
		p := warm(w, rwlock.WithTTL(time.Second))
		for _, link := range p.Links {
			link.Delay(way)
		}
		p.Links[i].Delay(time.Millisecond)
		processes[i] = p
	}
	counts := make(map[int32]int)
	for range ticks {
		var runs atomic.Int32
		var all sync.WaitGroup
		for _, p := range processes {
			all.Go(func() { ask(p, func(context.Context) error { runs.Add(1); return nil }) })
		}
		all.Wait()
		counts[runs.Load()]++
		time.Sleep(2 * time.Second)
	}
	return counts
}

// An upgrade that was passed over while it was cut off has lost its place to another one, and is told so when back.
func TestAnUpgradeThatWasPassedOverMeetsAnother(t *testing.T) {
	eachInFakeTime(t, 3, map[string]int{"by all masters": 3, "by two": 2}, func(w *world, off int) {
		first, other := w.Process(), w.Process()
		reads := func(p *process) *rwlock.Lease { return p.Acquire(w.Soon(30*time.Second), "n", rwlock.Read).Granted() }
		upgrades := func(lease *rwlock.Lease) <-chan error {
			done := make(chan error, 1)
			go func() { done <- lease.Upgrade(w.Soon(30 * time.Second)) }()
			time.Sleep(10 * time.Millisecond) // it is queued everywhere
			return done
		}
		lease, leaves := reads(first), reads(other)
		passedOver := upgrades(lease)
		first.CutOff(testkit.Span(0, off)...)
		w.Release(leaves)
		later := reads(other)
		upgraded := upgrades(later)
		first.Restore(testkit.Span(0, off)...)
		require.ErrorIs(w, <-passedOver, rwlock.ErrUpgrade)
		w.Release(lease)
		require.NoError(w, <-upgraded)
		w.Release(later)
	})
}

// A pair over a quorum takes one round trip, whichever minority is missing, and no request is sent twice.
func TestAPairOverAQuorumTakesOneRoundTrip(t *testing.T) {
	const way, n = 10 * time.Millisecond, 5
	for _, tuned := range []bool{false, true} {
		for _, silent := range []bool{false, true} {
			runInFakeTime(t, fmt.Sprint("tuned ", tuned, ", silent ", silent), 3, func(w *world) {
				w.Net.Tuned = tuned
				p := w.ProcessAt(way, rwlock.WithBackgroundRelease())
				p.WarmUp()
				w.Pass(time.Second)
				if silent {
					p.Links[2].Blackhole(testredis.Both)
				}
				requests := w.Requests(p)
				began := time.Now()
				for range n {
					require.NoError(w, p.Take("n", rwlock.Write).Release(w.Ctx))
					synctest.Wait() // the release has left
				}
				require.Equal(w, n*2*way, time.Since(began))
				w.Pass(time.Second)
				require.Equal(w, map[scripts.Name]int{scripts.Acquire: n, scripts.Release: n}, requests.Counts())
				p.Links[2].Restore()
				w.Pass(time.Minute)
				require.Empty(w, w.Inspect("n").Holders)
			})
		}
	}
}
