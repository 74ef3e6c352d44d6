package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/events"
)

// Event describes an acquisition or a lease at the time of the event.
type Event struct {
	Name  string
	Mode  fencing.Mode
	Owner string
	Hold  string
	Token fencing.Token // 0 before it is granted
	Since time.Duration // since the acquisition began
}

// Hooks are called for events of a lease's life. Each may be nil. They run on a goroutine of their own, in order.
type Hooks struct {
	Waiting, Acquired, Renewed, Released func(Event)
	Lost                                 func(Event, *Loss)
	Unreachable                          func(Event, error)
	NoMessages                           func(server string, cause error)
}

// observers are the user's hooks and logger. They run on a goroutine of their own, in order: user code may block or
// call the locker, and the events happen under a lease's mutex.
type observers struct {
	hooks  Hooks
	logger *slog.Logger
	relay  events.Relay
}

// offer queues an event for a hook, under mu. It may be dropped, and nothing depends on it.
func (o *observers) offer(hook func(Event), h *hold) {
	if hook != nil {
		event := h.event()
		o.relay.Offer(func() { hook(event) })
	}
}

// warn logs a fault, and info logs its end.
func (o *observers) warn(message string, attributes ...slog.Attr) {
	o.log(slog.LevelWarn, message, attributes)
}

func (o *observers) info(message string, attributes ...slog.Attr) {
	o.log(slog.LevelInfo, message, attributes)
}

func (o *observers) log(level slog.Level, message string, attributes []slog.Attr) {
	if o.logger.Handler() != slog.DiscardHandler {
		o.relay.Offer(func() { o.logger.LogAttrs(context.Background(), level, message, attributes...) })
	}
}

// acquired reports the grant of a hold, under mu. The end is reported only if the grant was, regardless of overflow in
// between, so that a hook that counts leases up and down comes out even, also over conversions. The grant is offered
// even if only a hook of an end is set: ends are always taken, and only the grants bound how many there are.
func (o *observers) acquired(h *hold) {
	hooks := &o.hooks
	if hooks.Acquired == nil && hooks.Released == nil && hooks.Lost == nil {
		return
	}
	event := h.event()
	h.unobserved = !o.relay.Offer(func() {
		if hooks.Acquired != nil {
			hooks.Acquired(event)
		}
	})
}

// released reports the end of a hold by its holder, under mu.
func (o *observers) released(h *hold) {
	if hook := o.hooks.Released; hook != nil && !h.unobserved {
		event := h.event()
		o.relay.Final(func() { hook(event) })
	}
}

// lost reports the end of a hold without its holder's wish, under mu.
func (o *observers) lost(h *hold, loss *Loss) {
	attributes := []slog.Attr{
		slog.String("lock", h.name), slog.Uint64("token", uint64(loss.Token)), slog.String("reason", string(loss.Reason)),
	}
	if loss.Limit > 0 {
		attributes = append(attributes, slog.Duration("limit", loss.Limit))
	}
	if cause := loss.Cause(); cause != nil {
		attributes = append(attributes, slog.Any("error", cause))
	}
	o.warn("lease lost", attributes...)
	if hook := o.hooks.Lost; hook != nil && !h.unobserved {
		event := h.event()
		o.relay.Final(func() { hook(event, loss) })
	}
}
