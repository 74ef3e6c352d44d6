package events_test

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/events"
)

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
