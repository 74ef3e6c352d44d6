package rwlock

import (
	"context"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/settings"
)

// Trace has functions that the locker calls on events of its acquisitions and leases. Each function may be nil. They
// run one after the other, in order, on a goroutine that no lease depends on. They may block and may call the locker,
// including its Close. While a function blocks, up to 4096 events wait; further events are dropped and counted in
// Stats.
//
// Their context is that of the acquisition, with its values and without its end, so that a span finds its parent also
// after the acquisition. Of an RWMutex it is the context of the call that acquired the lock from Redis.
//
// Every acquisition that begins ends in one call, of Acquired or of Failed. It begins when its name and options have
// passed: after an *OptionError for these, or ErrNested, no function is called. A conversion is an acquisition in the
// other mode. Acquisitions that need no request have no events: those that nest in a hold of package reentrant, and
// those that goroutines of a process serve each other under an RWMutex. Every call of Acquired is followed by a call
// of Released, Expired or Lost before Close returns, unless the functions keep Close waiting beyond the release
// timeout.
type Trace struct {
	Waiting  func(context.Context, TraceEvent)        // an acquisition was not granted at once, for any reason
	Acquired func(context.Context, TraceEvent)        // a lease begins
	Failed   func(context.Context, TraceEvent, error) // an acquisition has given up, and why
	Renewed  func(context.Context, TraceEvent)        // a renewal was confirmed
	Detached func(context.Context, TraceEvent)        // a lease was detached; Released is called as well
	Released func(context.Context, TraceEvent)        // a lease was released

	// AtRisk is called when a third of its TTL is left of a lease, because no renewal was confirmed since the first third:
	// once until one is. A hand-off that is not confirmed is at risk when a third of its time limit is left. AtRisk is not
	// called for a lease WithoutRenewal, nor for a lease that reaches the limit of WithMaxHold first.
	AtRisk func(ctx context.Context, e TraceEvent, left time.Duration)

	// Expired is called when a lease WithoutRenewal ended with its TTL. That was planned, so Lost is not called, although
	// calls on the lease return a *LostError: the same as in Stats, in the log and in Losses.
	Expired func(context.Context, TraceEvent)

	// Lost is called when a lease ended without Release. The loss of an RWMutex has the token of the section.
	Lost func(context.Context, TraceEvent, *LostError)

	// ReleaseFailed is called for a lease of WithBackgroundRelease, after Released, with the error that Release would have
	// returned if it had waited for the answer: a *LostError, or the *QuorumError of a release that is not confirmed.
	// It is called also where Acquired and Released were dropped, unless it is dropped itself then.
	ReleaseFailed func(context.Context, TraceEvent, error)

	// Unreachable is called while no quorum answers a waiting acquisition. It is called for each server that does not
	// answer: at once, then after 1 s, and after twice as long each time, up to 1 min, until the server answers again. A
	// server that answers but refuses to serve the acquisition for a second (out of memory, too few replicas, a full disk)
	// counts as a server that does not answer. The error is that server's cause, as in NodeError.Err.
	Unreachable func(context.Context, TraceEvent, error)

	// NoMessages is called once when a server answers, but its messages of hand-offs do not arrive: no right to the
	// channel, a command that is renamed or that a proxy refuses, too many connections. Waiters poll instead, at intervals
	// from 10 ms up to a third of a TTL (1 s at most), until messages arrive.
	NoMessages func(server string, err error)
}

// TraceEvent describes the acquisition of an event.
type TraceEvent struct {
	Name  string
	Mode  Mode
	Owner string
	Hold  string        // a ULID, one for each acquisition
	Token fencing.Token // 0 before the grant; of an RWMutex the last token that its sections may use under this lease
	Since time.Duration // since the acquisition began

	Contended bool // the acquisition was not granted at once: Waiting was called, unless the event was dropped
}

// WithTrace sets the functions that are called on events. The Trace is read once: a field that is set later is not
// called. It must not be nil.
func WithTrace(t *Trace) Option {
	return settings.LockerOption(func(l *settings.Locker) {
		if t == nil {
			l.Lock.Refuse("WithTrace", "nil", "must be a trace")
			return
		}
		l.Hooks = t.hooks()
	})
}

// hooks passes nil on for a nil function, so that the engine computes nothing for it. An engine without hooks makes no
// events and starts no goroutine for them.
func (t *Trace) hooks() (h engine.Hooks) {
	told := func(what engine.What, f func(context.Context, TraceEvent)) {
		if f != nil {
			h.Of[what] = func(ctx context.Context, e engine.Event, _ error, _ time.Duration) { f(ctx, TraceEvent(e)) }
		}
	}
	failed := func(what engine.What, f func(context.Context, TraceEvent, error)) {
		if f != nil {
			h.Of[what] = func(ctx context.Context, e engine.Event, err error, _ time.Duration) {
				f(ctx, TraceEvent(e), convertError(err))
			}
		}
	}
	told(engine.OnWaiting, t.Waiting)
	told(engine.OnAcquired, t.Acquired)
	told(engine.OnRenewed, t.Renewed)
	told(engine.OnDetached, t.Detached)
	told(engine.OnReleased, t.Released)
	told(engine.OnExpired, t.Expired)
	failed(engine.OnFailed, t.Failed)
	failed(engine.OnReleaseFailed, t.ReleaseFailed)
	failed(engine.OnUnreachable, t.Unreachable)
	if lost := t.Lost; lost != nil {
		failed(engine.OnLost, func(ctx context.Context, e TraceEvent, err error) { lost(ctx, e, err.(*LostError)) })
	}
	if atRisk := t.AtRisk; atRisk != nil {
		h.Of[engine.OnAtRisk] = func(ctx context.Context, e engine.Event, _ error, left time.Duration) {
			atRisk(ctx, TraceEvent(e), left)
		}
	}
	if noMessages := t.NoMessages; noMessages != nil {
		h.NoMessages = func(server string, err error) { noMessages(server, convertError(err)) }
	}
	return h
}
