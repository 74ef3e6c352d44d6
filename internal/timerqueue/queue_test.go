package timerqueue_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/timerqueue"
)

// alarm is one timer of a queue.
type alarm struct {
	timerqueue.Timer
	ring func(at time.Duration)
}

func (a *alarm) Fire(now clock.Instant) { a.ring(now.Mono) }

type queue struct{ q *timerqueue.Queue }

func (s queue) Set(a *alarm, at time.Duration) { s.q.Set(&a.Timer, a, at) }
func (s queue) Cancel(a *alarm)                { s.q.Cancel(&a.Timer) }
func (s queue) Run(stop <-chan struct{})       { s.q.Run(stop) }

// bell notes which alarms have rung, and when.
type bell struct {
	mu   sync.Mutex
	rung []ring
}

type ring struct {
	alarm int
	at    time.Duration
}

func (b *bell) alarm(i int) *alarm {
	return &alarm{ring: func(at time.Duration) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.rung = append(b.rung, ring{i, at})
	}}
}

// take returns what has rung since the last call, once all is settled.
func (b *bell) take() []ring {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	rung := b.rung
	b.rung = nil
	return rung
}

// running starts a schedule in the bubble; it ends with the test.
func running(t *testing.T, c clock.Clock, jump func()) queue {
	s := queue{timerqueue.New(c, func(clock.Instant) { jump() })}
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		s.Run(stop)
	}()
	t.Cleanup(func() {
		close(stop)
		<-over
	})
	return s
}

func noJump() { panic("the clock has not jumped") }

func TestAlarmsRingInOrderAndOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := running(t, clock.System(), noJump)
		var b bell
		times := rand.Perm(1000)
		for i, ms := range times {
			s.Set(b.alarm(i), time.Duration(ms)*time.Millisecond)
		}
		time.Sleep(time.Hour)
		rung := b.take()
		require.Len(t, rung, len(times), "each once")
		for ms, r := range rung {
			require.Equal(t, ms, times[r.alarm])
			require.Equal(t, time.Duration(ms)*time.Millisecond, r.at)
		}
	})
}

// An alarm that is set again rings once, at the new time.
func TestAlarmsAreMoved(t *testing.T) {
	for _, c := range []struct {
		name string
		move func(queue, *alarm)
		at   []time.Duration
	}{
		{"left alone", func(queue, *alarm) {}, []time.Duration{10 * time.Second}},
		{"later", func(s queue, a *alarm) { s.Set(a, time.Minute) }, []time.Duration{time.Minute}},
		{"earlier", func(s queue, a *alarm) { s.Set(a, time.Second) }, []time.Duration{time.Second}},
		{"into the past", func(s queue, a *alarm) { s.Set(a, -1) }, []time.Duration{0}},
		{"cancelled", func(s queue, a *alarm) { s.Cancel(a) }, nil},
		{"cancelled twice", func(s queue, a *alarm) { s.Cancel(a); s.Cancel(a) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := running(t, clock.System(), noJump)
				var b, others bell
				for i := range 50 {
					s.Set(others.alarm(i), time.Duration(i)*time.Second)
				}
				a := b.alarm(0)
				s.Set(a, 10*time.Second)
				c.move(s, a)
				time.Sleep(time.Hour)
				var at []time.Duration
				for _, r := range b.take() {
					at = append(at, r.at)
				}
				require.Equal(t, c.at, at)
				require.Len(t, others.take(), 50, "the others are not touched")
			})
		})
	}
}

// takeDue removes from the table what is due, and returns it.
func takeDue(table map[int]time.Duration, now time.Duration) map[int]time.Duration {
	due := map[int]time.Duration{}
	for i, at := range table {
		if at <= now {
			due[i] = at
			delete(table, i)
		}
	}
	return due
}

// Any sequence of calls against the plainest model: a table of times.
func TestScheduleAgainstAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := running(t, clock.System(), noJump)
		start := time.Now()
		var b bell
		alarms := make([]*alarm, 30)
		for i := range alarms {
			alarms[i] = b.alarm(i)
		}
		due := map[int]time.Duration{}
		random := rand.New(rand.NewPCG(1, 2))
		for range 5000 {
			i, now := random.IntN(len(alarms)), time.Since(start)
			at := now + 1 + time.Duration(random.Int64N(int64(3*time.Second)))
			switch random.IntN(3) {
			case 0:
				s.Set(alarms[i], at)
				due[i] = at
			case 1:
				s.Cancel(alarms[i])
				delete(due, i)
			case 2:
				time.Sleep(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
				now = time.Since(start)
				want := takeDue(due, now)
				got := map[int]time.Duration{}
				for _, r := range b.take() {
					require.NotContains(t, got, r.alarm, "twice")
					got[r.alarm] = r.at
				}
				require.Equal(t, want, got)
			}
		}
	})
}

// A jump of the wall clock beyond rounding is noticed within a second while anything is set.
func TestJumpsAreNoticed(t *testing.T) {
	for _, c := range []struct {
		name  string
		by    time.Duration
		jumps int
	}{
		{"none", 0, 0},
		{"a millisecond", time.Millisecond, 0},
		{"a little", 3 * time.Millisecond, 1},
		{"an hour", time.Hour, 1},
		{"back", -time.Hour, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var ahead time.Duration
				var jumps []time.Time
				start := time.Now()
				skewed := func() (time.Duration, time.Time) {
					mu.Lock()
					defer mu.Unlock()
					return time.Since(start), time.Now().Add(ahead)
				}
				s := running(t, skewed, func() {
					mu.Lock()
					defer mu.Unlock()
					jumps = append(jumps, time.Now())
				})
				var b bell
				s.Set(b.alarm(0), time.Hour)
				time.Sleep(1500 * time.Millisecond)
				mu.Lock()
				ahead += c.by
				mu.Unlock()
				jumped := time.Now()
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				require.Len(t, jumps, c.jumps)
				for _, noticed := range jumps {
					require.LessOrEqual(t, noticed.Sub(jumped), time.Second)
				}
			})
		})
	}
}

// The clock may jump before the goroutine of Run has been scheduled for the first time.
func TestAJumpBeforeRunIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, ahead := time.Now(), time.Duration(0)
		jumps := 0
		q := timerqueue.New(
			func() (time.Duration, time.Time) { return time.Since(start), time.Now().Add(ahead) },
			func(clock.Instant) { jumps++ },
		)
		ahead = time.Hour
		stop, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			q.Run(stop)
		}()
		synctest.Wait()
		close(stop)
		<-over
		require.Equal(t, 1, jumps)
	})
}

// The queue knows how late it was, also while it has not come to a timer that is due.
func TestDelaysAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		var behind atomic.Int64 // by how much the clock is ahead of the timers of the runtime
		system := clock.System()
		now := func() time.Duration { return system.Now().Mono + time.Duration(behind.Load()) }
		s := running(t, func() (time.Duration, time.Time) { return now(), time.Unix(0, int64(now())) }, noJump)
		var b bell
		late := func(by time.Duration) (at time.Duration) { // fires a timer that late
			s.Set(b.alarm(0), now()+time.Second)
			synctest.Wait()
			behind.Add(int64(by))
			time.Sleep(time.Second)
			require.Len(t, b.take(), 1)
			return now()
		}
		require.Zero(t, s.q.Delayed(0, now()))
		first := late(30 * ms)
		second := late(50 * ms)
		third := late(20 * ms)
		late(0)
		require.Equal(t, 50*ms, s.q.Delayed(0, now()))
		require.Equal(t, 50*ms, s.q.Delayed(first, now()))
		require.Equal(t, 50*ms, s.q.Delayed(second, now()))
		require.Equal(t, 20*ms, s.q.Delayed(second+1, now()))
		require.Zero(t, s.q.Delayed(third+1, now()))
		for by := 40 * ms; by > 0; by -= ms {
			late(by)
		}
		require.Equal(t, ms, s.q.Delayed(now(), now()))
		require.Equal(t, 50*ms, s.q.Delayed(0, now()), "of many that shrink, the largest")
		s.Set(b.alarm(0), now()+time.Second)
		require.Equal(t, 70*ms, s.q.Delayed(now(), now()+time.Second+70*ms), "it is due and has not fired")
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A lock that is free is taken and released within a moment, again and again. Its timers do not wake the queue each
// time.
func TestTimersThatAreSoonCancelledWakeItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wakeUps atomic.Int64
		system := clock.System()
		s := queue{timerqueue.New(func() (time.Duration, time.Time) {
			wakeUps.Add(1)
			return system()
		}, func(clock.Instant) {})}
		stop, a := make(chan struct{}), new(bell).alarm(0)
		go s.Run(stop)
		for i := range 100 {
			s.Set(a, time.Duration(i)*time.Millisecond+10*time.Second)
			s.Cancel(a)
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, wakeUps.Load(), int64(3))
		time.Sleep(time.Hour)
		require.LessOrEqual(t, wakeUps.Load(), int64(4), "an idle queue sleeps")
		close(stop)
	})
}
