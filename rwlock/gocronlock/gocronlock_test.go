package gocronlock_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/rwlock/gocronlock"
	"github.com/seed74116694/fencelock/ticks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type world = testkit.World

const period = 10 * time.Second

// runs counts the runs of a job in each process.
type runs struct {
	mu sync.Mutex
	of map[int]int
}

func (r *runs) add(process int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[int]int{}
	}
	r.of[process]++
}

func (r *runs) each() map[int]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.of)
}

func (r *runs) total() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.of {
		n += of
	}
	return n
}

// schedule starts a scheduler with a job of that period. What the job's listeners hear of failed locks goes to refused.
func schedule(w *world, option gocron.SchedulerOption, work func(), refused func(error)) gocron.Scheduler {
	s := expect.NoError(gocron.NewScheduler(option, gocron.WithLocation(time.UTC))).In(w)
	_, err := s.NewJob(gocron.DurationJob(period), gocron.NewTask(work), gocron.WithName("report"),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused(err) })))
	require.NoError(w, err)
	s.Start()
	return s
}

// Three processes that are 50 ms apart run each tick once, although the job is over at once.
func TestATickRunsOnce(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		var ran runs
		for i := range 3 {
			l := expect.NoError(gocronlock.NewLocker(w.Process().Locker, period/2)).In(w)
			s := schedule(w, gocron.WithDistributedLocker(l), func() { ran.add(i) }, func(err error) {
				if !errors.Is(err, rwlock.ErrNotAcquired) {
					w.Error(err)
				}
			})
			defer func() { require.NoError(w, s.Shutdown()) }()
			w.Pass(50 * time.Millisecond)
		}
		w.Pass(20*period + period/2)
		require.Equal(w, 20, ran.total())
	})
}

// A process waits for half of the minimum, and for a second at most: no wait outlasts the minimum of a tick that
// another process has run.
func TestTheWaitFollowsFromTheMinimum(t *testing.T) {
	for minHold, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 50 * time.Millisecond, 250 * time.Millisecond: 125 * time.Millisecond,
		time.Hour: time.Second,
	} {
		testkit.InFakeTime(t, 1, func(w *world) {
			l := expect.NoError(gocronlock.NewLocker(w.Process().Locker, minHold, rwlock.WithMaxWait(time.Hour))).In(w)
			held := w.Process().Take("report", rwlock.Write)
			attempt := w.Call(w.Ctx, func(ctx context.Context) error {
				lock, err := l.Lock(ctx, "report")
				if err != nil {
					return err
				}
				return lock.Unlock(ctx)
			})
			w.Pass(want - time.Millisecond)
			require.True(w, attempt.IsWaiting())
			require.NoError(w, held.Release(w.Ctx))
			require.NoError(w, attempt.Result())

			w.Pass(minHold)
			held = w.Process().Take("report", rwlock.Write)
			begun := time.Now()
			_, err := l.Lock(w.Ctx, "report")
			require.ErrorIs(w, err, rwlock.ErrNotAcquired)
			require.InDelta(w, want.Milliseconds(), time.Since(begun).Milliseconds(), 1)
			begun = time.Now()
			_, err = l.Lock(w.Soon(5*time.Millisecond), "report")
			require.ErrorIs(w, err, rwlock.ErrNotAcquired)
			require.Equal(w, 5*time.Millisecond, time.Since(begun))
			w.Release(held)
		})
	}
}

// The shortest minimum holds: schedulers that are as far apart as the wait leaves of it run each tick once.
func TestAShortMinimum(t *testing.T) {
	for _, minHold := range []time.Duration{100 * time.Millisecond, 250 * time.Millisecond} {
		testkit.InFakeTime(t, 1, func(w *world) {
			var ran runs
			for i := range 3 {
				l := expect.NoError(gocronlock.NewLocker(w.Process().Locker, minHold)).In(w)
				s := schedule(w, gocron.WithDistributedLocker(l), func() { ran.add(i) }, func(error) {})
				defer func() { require.NoError(w, s.Shutdown()) }()
				w.Pass(minHold/4 - time.Millisecond)
			}
			w.Pass(20*period + period/2)
			require.Equal(w, 20, ran.total())
		})
	}
}

// Over a quorum with round trips of 60 ms processes ask at the same moment. No tick is missed, and none runs twice.
func TestTicksOverAFarQuorum(t *testing.T) {
	const rounds = 20
	for _, processes := range testredis.Few([]int{3}, []int{3, 8, 16}) {
		testkit.InFakeTime(t, 3, func(w *world) {
			w.TTL = time.Second
			var lockers []*gocronlock.Locker
			for i := range processes {
				p := w.Connect(testkit.Net{Tuned: true})
				for m, link := range p.Links {
					if m != i%len(p.Links) {
						link.DelayFunc(testredis.Both, func() time.Duration {
							return 24*time.Millisecond + rand.N(12*time.Millisecond)
						})
					}
				}
				p.Start(redlock.WithNodeTimeout(100 * time.Millisecond))
				p.WarmUp()
				lockers = append(lockers, expect.NoError(gocronlock.NewLocker(p.Locker, time.Second)).In(w))
			}
			counts := map[int32]int{}
			for range rounds {
				var runs atomic.Int32
				var all sync.WaitGroup
				for _, l := range lockers {
					all.Go(func() {
						time.Sleep(rand.N(5 * time.Millisecond))
						lock, err := l.Lock(w.Ctx, "job")
						if err != nil {
							return
						}
						runs.Add(1)
						if err := lock.Unlock(w.Ctx); err != nil {
							w.Error(err)
						}
					})
				}
				all.Wait()
				counts[runs.Load()]++
				w.Pass(2 * time.Second)
			}
			require.Equal(w, map[int32]int{1: rounds}, counts, "ticks by their runs, of %d processes", processes)
		})
	}
}

// A Task runs in each process, and does its work in one: in the first that starts it, under the fence of the tick.
func TestATaskRunsOnce(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		var ran runs
		var failed atomic.Int32
		own := errors.New("own")
		for i := range 3 {
			tt := expect.NoError(ticks.New(w.Process().Client)).In(w)
			task := gocronlock.Task(tt, "report", func(now time.Time) time.Time { return now.Round(period) },
				func(ctx context.Context) error {
					fence, err := fencing.Require(ctx, "ticks/report")
					if err != nil || !time.UnixMicro(int64(fence.Token)).Equal(time.Now().Round(period)) {
						w.Error(fence, err)
					}
					ran.add(i)
					return own
				})
			s := expect.NoError(gocron.NewScheduler(gocron.WithLocation(time.UTC))).In(w)
			expect.NoError(s.NewJob(gocron.DurationJob(period), task, gocron.WithEventListeners(
				gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) {
					if !errors.Is(err, own) {
						w.Error(err)
					}
					failed.Add(1)
				})))).In(w)
			s.Start()
			defer func() { require.NoError(w, s.Shutdown()) }()
			w.Pass(time.Second)
		}
		w.Pass(20*period + period/2)
		require.Equal(w, map[int]int{0: 20}, ran.each())
		require.EqualValues(w, 20, failed.Load())
	})
}

// A long run keeps its lock, and the lock of a run is free for the next tick.
func TestALongRunKeepsItsLock(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		l := expect.NoError(gocronlock.NewLocker(w.Process().Locker, time.Second)).In(w)
		lock := expect.NoError(l.Lock(w.Ctx, "report")).In(w)
		w.Pass(3 * period)
		_, err := l.Lock(w.Ctx, "report")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		require.NoError(w, lock.Unlock(w.Ctx))
		require.NoError(w, expect.NoError(l.Lock(w.Ctx, "report")).In(w).Unlock(w.Ctx))
		_, err = l.Lock(w.Ctx, "report")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired, "within the minimum")

		lock = expect.NoError(l.Lock(w.Ctx, "lost")).In(w)
		w.FlushAll()
		require.ErrorIs(w, lock.Unlock(w.Ctx), rwlock.ErrLost)
	})
}

// The process that leads runs all ticks. Another one leads at once after Close, or after the TTL.
func TestOneProcessLeads(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		var ran runs
		var processes []*testkit.Process
		var electors []*gocronlock.Elector
		for i := range 3 {
			p := w.Process()
			e := expect.NoError(gocronlock.NewElector(p.Locker, "cron")).In(w)
			processes, electors = append(processes, p), append(electors, e)
			s := schedule(w, gocron.WithDistributedElector(e), func() { ran.add(i) }, func(error) {})
			defer func() { require.NoError(w, s.Shutdown()) }()
			w.Pass(50 * time.Millisecond)
		}
		w.Pass(5*period + period/2)
		require.Equal(w, map[int]int{0: 5}, ran.each())

		require.NoError(w, electors[0].Close())
		require.NoError(w, electors[0].Close())
		require.ErrorIs(w, electors[0].IsLeader(w.Ctx), gocronlock.ErrClosed)
		w.Pass(5 * period)
		require.Equal(w, map[int]int{0: 5, 1: 5}, ran.each())

		processes[1].Link.Blackhole(testredis.Both) // its lease lasts for one more tick
		w.Pass(5 * period)
		require.Equal(w, map[int]int{0: 5, 1: 6, 2: 4}, ran.each())
		require.NoError(w, electors[2].Close())
		require.NoError(w, electors[1].Close())
	})
}

// Over a quorum processes that each get one master wait in its queues: one leads at the first tick.
func TestOneProcessLeadsOverAQuorum(t *testing.T) {
	testkit.InFakeTime(t, 3, func(w *world) {
		processes := make([]*testkit.Process, len(w.Minis))
		for i := range processes {
			p := w.Process()
			p.Section("warm-up")
			for _, link := range p.Links {
				link.Delay(30 * time.Millisecond)
			}
			p.Links[i].Delay(time.Millisecond)
			processes[i] = p
		}
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			var lead atomic.Int32
			var asked sync.WaitGroup
			for _, p := range processes {
				e := expect.NoError(gocronlock.NewElector(p.Locker, name)).In(w)
				defer func() { require.NoError(w, e.Close()) }()
				asked.Go(func() {
					if err := e.IsLeader(w.Ctx); err == nil {
						lead.Add(1)
					} else if !errors.Is(err, rwlock.ErrNotAcquired) && !errors.Is(err, rwlock.ErrNoQuorum) {
						w.Error(err)
					}
				})
			}
			asked.Wait()
			require.EqualValues(w, 1, lead.Load(), name)
		}
	})
}

// Jobs of one tick ask at the same time. They do not wait for each other's attempts.
func TestJobsOfATickShareAttempts(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		e := expect.NoError(gocronlock.NewElector(w.Process().Locker, "cron")).In(w)
		held := w.Process().Take("cron", rwlock.Write)
		begun := time.Now()
		var jobs sync.WaitGroup
		for range 20 {
			jobs.Go(func() {
				if err := e.IsLeader(w.Ctx); !errors.Is(err, rwlock.ErrNotAcquired) {
					w.Error(err)
				}
			})
		}
		jobs.Wait()
		require.InDelta(w, 500, time.Since(begun).Milliseconds(), 1)
		require.NoError(w, held.Release(w.Ctx))
		require.NoError(w, e.IsLeader(w.Ctx), "the next tick is another attempt")
		require.NoError(w, e.Close())
	})
}

// Close does not wait for an attempt that Redis does not answer.
func TestCloseEndsAnAttempt(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		p := w.Process()
		e := expect.NoError(gocronlock.NewElector(p.Locker, "cron")).In(w)
		p.Link.Blackhole(testredis.Both)
		attempt := w.Call(w.Ctx, e.IsLeader)
		require.True(w, attempt.IsWaiting())
		ended, cancel := context.WithCancel(w.Ctx)
		cancel()
		require.ErrorIs(w, e.IsLeader(ended), context.Canceled)
		begun := time.Now()
		require.NoError(w, e.Close())
		require.ErrorIs(w, attempt.Result(), gocronlock.ErrClosed)
		require.Zero(w, time.Since(begun))
		p.Link.Restore()
	})
}

func TestBadInput(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		p := w.Process().Locker
		for name, make := range map[string]func() error{
			"locker":           func() error { _, err := gocronlock.NewLocker(nil, time.Second); return err },
			"elector's locker": func() error { _, err := gocronlock.NewElector(nil, "n"); return err },
			"no minimum":       func() error { _, err := gocronlock.NewLocker(p, 0); return err },
			"too short":        func() error { _, err := gocronlock.NewLocker(p, 100*time.Millisecond-1); return err },
			"too long":         func() error { _, err := gocronlock.NewLocker(p, 25*time.Hour); return err },
			"nil option":       func() error { _, err := gocronlock.NewLocker(p, time.Second, nil); return err },
			"elector's option": func() error { _, err := gocronlock.NewElector(p, "n", nil); return err },
			"no name": func() error {
				e := expect.NoError(gocronlock.NewElector(p, "")).In(w)
				defer func() { require.NoError(w, e.Close()) }()
				return e.IsLeader(w.Ctx)
			},
			"a rule of opts": func() error {
				l := expect.NoError(gocronlock.NewLocker(p, time.Second, rwlock.WithTTL(time.Nanosecond))).In(w)
				_, err := l.Lock(w.Ctx, "n")
				return err
			},
		} {
			require.ErrorIs(w, make(), rwlock.ErrOption, name)
		}
		require.NoError(w, p.Close())
		l := expect.NoError(gocronlock.NewLocker(p, time.Second)).In(w)
		_, err := l.Lock(w.Ctx, "n")
		require.ErrorIs(w, err, rwlock.ErrClosed)
	})
}
