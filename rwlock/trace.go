package rwlock

import (
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/settings"
)

// Trace is told of what happens to a locker's leases. Each function may be nil; they are called from the locker's own
// goroutines and must not block.
type Trace struct {
	Waiting  func(TraceEvent)             // an acquisition was not granted at once
	Acquired func(TraceEvent)             // a lease begins
	Renewed  func(TraceEvent)             // a renewal was confirmed
	Lost     func(TraceEvent, *LostError) // a lease ended without Release
	Released func(TraceEvent)             // a lease was released
}

// TraceEvent names the acquisition that something happened to.
type TraceEvent struct {
	Name  string
	Mode  Mode
	Owner string
	Hold  string        // a ULID, one for each acquisition
	Token fencing.Token // 0 while it waits
	Since time.Duration // since the acquisition began
}

// WithTrace sets the functions that are told of what happens.
func WithTrace(t *Trace) Option {
	return settings.LockerOption(func(l *settings.Locker) {
		if t == nil {
			l.Hooks = engine.Hooks{}
			return
		}
		l.Hooks = engine.Hooks{
			Waiting: hook(t.Waiting), Acquired: hook(t.Acquired), Renewed: hook(t.Renewed), Released: hook(t.Released),
		}
		if t.Lost != nil {
			l.Hooks.Lost = func(lease *engine.Lease, loss *engine.Loss) {
				t.Lost(event(lease), outcome(loss).(*LostError))
			}
		}
	})
}

func hook(f func(TraceEvent)) func(*engine.Lease) {
	if f == nil {
		return nil
	}
	return func(l *engine.Lease) { f(event(l)) }
}

func event(l *engine.Lease) TraceEvent {
	return TraceEvent{l.Name(), l.Mode(), l.Owner(), l.Hold(), l.Token(), l.Waited()}
}
