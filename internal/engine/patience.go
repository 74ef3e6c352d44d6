package engine

import (
	"context"
	"time"
)

// patience is a context that ends after its own time only: not with the caller's context, whose values it keeps. It
// shows no deadline, for the reason of undated. context.WithTimeout over context.WithoutCancel would cost twice the
// allocations on the path of every release.
type patience struct {
	context.Context // for its values
	over            chan struct{}
	timer           *time.Timer
}

func newPatience(values context.Context, d time.Duration) *patience {
	p := &patience{Context: values, over: make(chan struct{})}
	p.timer = time.AfterFunc(d, p.end)
	return p
}

func (p *patience) end() { close(p.over) }

// stop must be called once the context is of no use any more.
func (p *patience) stop() { p.timer.Stop() }

func (p *patience) Deadline() (time.Time, bool) { return time.Time{}, false }

func (p *patience) Done() <-chan struct{} { return p.over }

func (p *patience) Err() error {
	select {
	case <-p.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
