package transport

import (
	"context"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
)

// withoutDeadline hides a context's deadline and keeps its end.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// Detached is a context that ends after its own time, independent of the caller's context, whose values it keeps. It
// shows no deadline. Each Detached is used for one call, because a callee may use its context after it has returned, as
// the timer of a dial's child context does. Only the alarm is reused: no callee sees it, and a new one would cost two
// allocations.
type Detached struct {
	context.Context // for its values
	over            chan struct{}
	alarm           *alarm // nil once stopped
}

// alarm is a timer that successive Detached contexts reuse.
type alarm struct {
	timer *time.Timer
	ends  *Detached
	free  *sync.Pool // the pool that takes the alarm back if it has not fired
}

func (a *alarm) ring() { close(a.ends.over) }

// Detached starts the timer. Call Stop when the context is no longer needed.
func (m *Master) Detached(values context.Context, d time.Duration) *Detached {
	a, _ := m.alarms.Get().(*alarm)
	if a == nil {
		a = &alarm{free: &m.alarms}
		a.timer = time.AfterFunc(clock.Never, a.ring)
	}
	a.ends = &Detached{Context: values, over: make(chan struct{}), alarm: a}
	a.timer.Reset(d)
	return a.ends
}

// Stop frees the timer. A context that has not ended by then never ends, and keeps its values.
func (c *Detached) Stop() {
	a := c.alarm
	c.alarm = nil
	if a != nil && a.timer.Stop() {
		a.ends = nil
		a.free.Put(a)
	}
}

// Deadline returns no deadline. The package documentation gives the reason.
func (c *Detached) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the time is over.
func (c *Detached) Done() <-chan struct{} { return c.over }

// Err is context.DeadlineExceeded when the time is over.
func (c *Detached) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
