package rwlock

import (
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/settings"
)

// Trace has functions that the locker calls on events of its leases. Each function may be nil. They run one after the
// other, in order, on a goroutine that no lease depends on. They may block and may call the locker, including its
// Close. While a function blocks, up to 4096 events wait; further events are dropped and counted in Stats. Every call
// of Acquired is followed by a call of Released or Lost before Close returns, unless the functions keep Close waiting
// beyond the release timeout.
type Trace struct {
	Waiting  func(TraceEvent)             // an acquisition was not granted at once, for any reason
	Acquired func(TraceEvent)             // a lease begins
	Renewed  func(TraceEvent)             // a renewal was confirmed
	Lost     func(TraceEvent, *LostError) // a lease ended without Release; of an RWMutex the loss has the section's token
	Released func(TraceEvent)             // a lease was released

	// Unreachable is called while no quorum answers a waiting acquisition. It is called for each server that does not
	// answer: at once, then after 1 s, and after twice as long each time, up to 1 min, until the server answers again. A
	// server that answers but refuses to serve the acquisition for a second (out of memory, too few replicas, a full disk)
	// counts as a server that does not answer. The error is that server's cause, as in NodeError.Err.
	Unreachable func(TraceEvent, error)

	// NoMessages is called once when a server answers, but its messages of hand-offs do not arrive: no right to the
	// channel, a command that is renamed or that a proxy refuses, too many connections. Waiters poll instead, at intervals
	// from 10 ms up to a third of a TTL (1 s at most), until messages arrive. The error matches ErrMessages.
	NoMessages func(server string, err error)
}

// TraceEvent describes the acquisition of an event.
type TraceEvent struct {
	Name  string
	Mode  Mode
	Owner string
	Hold  string        // a ULID, one for each acquisition
	Token fencing.Token // 0 while it waits; of an RWMutex the last token that its sections may use under this lease
	Since time.Duration // since the acquisition began
}

// WithTrace sets the functions that are called on events. The Trace is read once: a field that is set later is not
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
			l.Hooks.Lost = func(e engine.Event, loss *engine.Loss) { t.Lost(TraceEvent(e), convertError(loss).(*LostError)) }
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

// hook passes nil on for a nil function, so that the engine computes nothing for it. An engine without hooks makes no
// events and starts no goroutine for them.
func hook(f func(TraceEvent)) func(engine.Event) {
	if f == nil {
		return nil
	}
	return func(e engine.Event) { f(TraceEvent(e)) }
}
