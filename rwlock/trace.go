package rwlock

import (
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/settings"
)

// Trace is told of what happens to a locker's leases. Each function may be nil. They run one after the other, in order,
// on a goroutine that no lease depends on; they may block and may call the locker, its Close included. While one of
// them blocks, up to 4096 events wait; more are dropped and counted in Stats. For every Acquired that was told, a
// Released or a Lost follows before Close returns, unless the functions keep Close waiting beyond the release timeout.
type Trace struct {
	Waiting  func(TraceEvent)             // an acquisition was not granted at once, for whatever reason
	Acquired func(TraceEvent)             // a lease begins
	Renewed  func(TraceEvent)             // a renewal was confirmed
	Lost     func(TraceEvent, *LostError) // a lease ended without Release
	Released func(TraceEvent)             // a lease was released

	// Unreachable is called while no quorum answers a waiting acquisition: for each server that does not answer at once,
	// then after 1 s, and after twice as long each time, up to 1 min, until it answers again. A server that answers, and
	// refuses to serve the acquisition for a second (out of memory, too few replicas, a disk that is full), counts as one
	// that does not. The error is that server's cause, as in NodeError.Err.
	Unreachable func(TraceEvent, error)

	// NoMessages is called once when a server answers, but messages of hand-offs do not arrive from it: no right to the
	// channel, a command that is renamed or that a proxy refuses, too many connections. Those who wait ask instead, at
	// intervals from 10 ms up to a third of a TTL (1 s at most), until messages arrive. The error matches ErrMessages.
	NoMessages func(server string, err error)
}

// TraceEvent names the acquisition that something happened to.
type TraceEvent struct {
	Name  string
	Mode  Mode
	Owner string
	Hold  string        // a ULID, one for each acquisition
	Token fencing.Token // 0 while it waits; of an RWMutex the last that its sections may use under this lease
	Since time.Duration // since the acquisition began
}

// WithTrace sets the functions that are told of what happens. The Trace is read once: a field that is set later is not
// called. It must not be nil.
func WithTrace(t *Trace) Option {
	return settings.LockerOption(func(l *settings.Locker) {
		if t == nil {
			l.Lock.Refuse("WithTrace", "nil", "must be a trace")
			return
		}
		l.Hooks = engine.Hooks{
			Waiting: hook(t.Waiting), Acquired: hook(t.Acquired), Renewed: hook(t.Renewed), Released: hook(t.Released),
		}
		if t.Lost != nil {
			l.Hooks.Lost = func(e engine.Event, loss *engine.Loss) { t.Lost(TraceEvent(e), outcome(loss).(*LostError)) }
		}
		if t.Unreachable != nil {
			l.Hooks.Unreachable = func(e engine.Event, err error) { t.Unreachable(TraceEvent(e), nodeCause(err)) }
		}
		if t.NoMessages != nil {
			l.Hooks.NoMessages = func(server string, err error) {
				t.NoMessages(server, fmt.Errorf("%w: %w", ErrMessages, nodeCause(err)))
			}
		}
	})
}

// hook keeps a function that is not set out of the engine, so that nothing is computed for it. An engine without hooks
// makes no event and starts no goroutine for them.
func hook(f func(TraceEvent)) func(engine.Event) {
	if f == nil {
		return nil
	}
	return func(e engine.Event) { f(TraceEvent(e)) }
}
