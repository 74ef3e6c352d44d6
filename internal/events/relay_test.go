package events_test

import (
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/events"
)

// limit is how long Close waits in these tests, in fake time.
const limit = 3 * time.Second

// journal notes what has run, in order.
type journal struct {
	mu  sync.Mutex
	ran []int
}

func (j *journal) entry(i int) func() {
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.ran = append(j.ran, i)
	}
}

func (j *journal) all() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ran
}

// blocked offers an event that does not return before release, and waits until it runs.
func blocked(t *testing.T, r *events.Relay) (release func()) {
	t.Helper()
	running, over := make(chan struct{}), make(chan struct{})
	require.True(t, r.Offer(func() {
		close(running)
		<-over
	}))
	<-running
	return sync.OnceFunc(func() { close(over) })
}

func sequence(from, to int) (numbers []int) {
	for i := from; i < to; i++ {
		numbers = append(numbers, i)
	}
	return numbers
}

func TestEventsRunInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var j journal
		release := blocked(t, &r)
		for i := range 100 {
			if i%3 == 0 {
				r.Final(j.entry(i))
			} else {
				require.True(t, r.Offer(j.entry(i)))
			}
		}
		require.Empty(t, j.all())
		release()
		r.Close(limit)
		require.Equal(t, sequence(0, 100), j.all())
	})
}

func TestAnEventMayOfferOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var j journal
		r.Offer(func() {
			r.Offer(j.entry(1))
			r.Final(j.entry(2))
			j.entry(0)()
		})
		r.Close(limit)
		require.Equal(t, sequence(0, 3), j.all())
	})
}

func TestOneEventAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var running, most int // no mutex: the race detector sees a second goroutine
		var offers sync.WaitGroup
		for range 8 {
			offers.Go(func() {
				for range 50 {
					r.Offer(func() {
						running++
						most = max(most, running)
						runtime.Gosched()
						running--
					})
				}
			})
		}
		offers.Wait()
		r.Close(limit)
		require.Equal(t, 1, most)
	})
}

func TestNoGoroutineIsLeftWithNothingToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var j journal
		for i := range 3 {
			r.Offer(j.entry(i))
			synctest.Wait()
			require.Equal(t, sequence(0, i+1), j.all())
			require.NotContains(t, goroutines(), "Relay", "and another is started for the next event")
		}
	})
}

func goroutines() string {
	var all [64 << 10]byte
	stacks := string(all[:runtime.Stack(all[:], true)])
	_, others, _ := strings.Cut(stacks, "\n\n") // the first is the caller's
	return others
}

func TestEventsBeyondTheBoundAreCountedAndNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var j journal
		release := blocked(t, &r)
		for i := range events.Capacity {
			require.True(t, r.Offer(j.entry(i)))
		}
		require.Zero(t, r.Dropped())
		for range 10 {
			require.False(t, r.Offer(func() { t.Error("it was refused") }))
		}
		require.EqualValues(t, 10, r.Dropped())
		release()
		r.Close(limit)
		require.Equal(t, sequence(0, events.Capacity), j.all())
		require.True(t, r.Offer(j.entry(events.Capacity)), "there is room again")
		r.Close(limit)
		require.EqualValues(t, 10, r.Dropped())
	})
}

func TestFinalEventsAreTakenBeyondTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var j journal
		release := blocked(t, &r)
		for i := range events.Capacity {
			r.Offer(j.entry(i))
		}
		for i := range 100 {
			r.Final(j.entry(events.Capacity + i))
		}
		require.Zero(t, r.Dropped())
		require.False(t, r.Offer(func() {}))
		release()
		r.Close(limit)
		require.Equal(t, sequence(0, events.Capacity+100), j.all())
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCloseWaitsForWhatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var j journal
		for i := range 5 {
			r.Offer(func() {
				time.Sleep(limit / 10)
				j.entry(i)()
			})
		}
		begun := time.Now()
		r.Close(limit)
		require.Equal(t, sequence(0, 5), j.all())
		require.Equal(t, limit/2, time.Since(begun))
	})
}

func TestCloseOfARelayThatDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		begun := time.Now()
		r.Close(limit)
		r.Offer(func() {})
		synctest.Wait()
		r.Close(limit)
		require.Zero(t, time.Since(begun))
	})
}

func TestCloseLeavesABlockedEventAfterItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var j journal
		release := blocked(t, &r)
		r.Final(j.entry(0))
		begun := time.Now()
		r.Close(limit)
		require.Equal(t, limit, time.Since(begun))
		require.Empty(t, j.all())
		release()
		synctest.Wait()
		require.Equal(t, sequence(0, 1), j.all(), "what is left runs once the event returns")
	})
}

func TestCloseFromInsideAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var j journal
		queued := make(chan struct{})
		r.Offer(func() {
			<-queued
			r.Offer(func() {
				r.Final(j.entry(1))
				r.Close(limit) // and again from one of those that Close runs
				j.entry(2)()
			})
			r.Close(limit)
			j.entry(3)()
		})
		r.Final(j.entry(0))
		close(queued)
		begun := time.Now()
		r.Close(limit)
		require.Equal(t, sequence(0, 4), j.all(), "Close has run the rest before it returned")
		require.Zero(t, time.Since(begun), "nobody waits for himself")
	})
}

func TestAnEventGoesOnAfterItClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var j journal
		r.Offer(func() {
			r.Close(limit)
			r.Offer(j.entry(1))
			time.Sleep(limit / 3)
			j.entry(0)()
		})
		begun := time.Now()
		r.Close(limit)
		require.Equal(t, sequence(0, 2), j.all(), "one at a time, still")
		require.Equal(t, limit/3, time.Since(begun))
	})
}

func TestAnEventThatEndsItsGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var j journal
		r.Offer(runtime.Goexit) // as FailNow of a test does
		r.Offer(j.entry(0))
		begun := time.Now()
		r.Close(limit)
		require.Equal(t, sequence(0, 1), j.all())
		require.Zero(t, time.Since(begun))
	})
}

func TestSeveralMayClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		release := blocked(t, &r)
		var closers sync.WaitGroup
		begun := time.Now()
		for range 3 {
			closers.Go(func() { r.Close(limit) })
		}
		synctest.Wait()
		time.Sleep(limit / 3)
		release()
		closers.Wait()
		require.Equal(t, limit/3, time.Since(begun))
	})
}

func TestCloseFromTheGoroutineOfAnEventThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		over := make(chan struct{})
		r.Offer(func() {
			go func() { // of the event's making, and not the relay's
				defer close(over)
				r.Close(limit)
			}()
			time.Sleep(limit / 3)
		})
		begun := time.Now()
		<-over
		require.Equal(t, limit/3, time.Since(begun), "it waits like any other")
	})
}
