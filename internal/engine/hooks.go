package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// Event is something that happened to an acquisition or a lease, as it was then.
type Event struct {
	Name  string
	Mode  fencing.Mode
	Owner string
	Hold  string
	Token fencing.Token
	Since time.Duration // since the acquisition began
}

// Hooks are told of a lease's life. Each may be nil. They run on a goroutine of their own, in order.
type Hooks struct {
	Waiting, Acquired, Renewed, Released func(Event)
	Lost                                 func(Event, *Loss)
	Unreachable                          func(Event, error)
	NoMessages                           func(server string, cause error)
}

// event describes the lease now, under mu.
func (l *Lease) event() Event {
	return Event{l.name, l.mode, l.owner, l.hold, l.token, l.e.clock.Now().Mono - l.begun.Mono}
}

// tell offers an event to a hook. Nothing depends on whether it arrives.
func (e *Engine) tell(hook func(Event), event Event) {
	if hook != nil {
		e.events.Offer(func() { hook(event) })
	}
}

// tellAcquired tells of a lease's beginning, under mu. Only then is its end told, whatever overflows in between.
func (l *Lease) tellAcquired() {
	hooks := &l.e.cfg.Hooks
	if hooks.Acquired == nil && hooks.Released == nil && hooks.Lost == nil {
		return
	}
	event := l.event()
	l.untold = !l.e.events.Offer(func() {
		if hooks.Acquired != nil {
			hooks.Acquired(event)
		}
	})
}

// tellReleased tells of a lease's end by its holder, under mu.
func (l *Lease) tellReleased() {
	if hook := l.e.cfg.Hooks.Released; hook != nil && !l.untold {
		event := l.event()
		l.e.events.Final(func() { hook(event) })
	}
}

// tellLost tells of a lease's end without its holder's wish, under mu.
func (l *Lease) tellLost(loss *Loss) {
	attributes := []slog.Attr{
		slog.String("lock", l.name), slog.Uint64("token", uint64(l.token)), slog.String("reason", loss.Reason.String()),
	}
	if loss.Err != nil {
		attributes = append(attributes, slog.Any("error", loss.Err))
	}
	l.e.warn("lease lost", attributes...)
	if hook := l.e.cfg.Hooks.Lost; hook != nil && !l.untold {
		event := l.event()
		l.e.events.Final(func() { hook(event, loss) })
	}
}

// warn writes to the log, on the goroutine of the hooks.
func (e *Engine) warn(message string, attributes ...slog.Attr) {
	if logger := e.cfg.Logger; logger.Handler() != slog.DiscardHandler {
		e.events.Offer(func() { logger.LogAttrs(context.Background(), slog.LevelWarn, message, attributes...) })
	}
}
