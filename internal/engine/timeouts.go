package engine

import (
	"sync"
	"time"
)

// timeouts are the timers of goroutines that wait for several masters. A timer that one goroutine has stopped in time
// serves another.
type timeouts struct{ stopped sync.Pool } // of *time.Timer

// start returns a timer that the caller has to stop.
func (t *timeouts) start(d time.Duration) *time.Timer {
	timer, _ := t.stopped.Get().(*time.Timer)
	if timer == nil {
		return time.NewTimer(d)
	}
	timer.Reset(d)
	return timer
}

func (t *timeouts) stop(timer *time.Timer) {
	if timer.Stop() {
		t.stopped.Put(timer)
	}
}
