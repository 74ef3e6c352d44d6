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

	Contended bool // it was not granted at once
}

// What says which event it is, as the fields of rwlock.Trace do.
type What uint8

// The events.
const (
	OnWaiting What = iota
	OnAcquired
	OnFailed // this and the next two with an error
	OnReleaseFailed
	OnUnreachable
	OnLost   // with a *Loss
	OnAtRisk // with what is left
	OnRenewed
	OnDetached
	OnReleased
	OnExpired
	eventKinds
)

// Hook is called for an event, with the context of the acquisition without its end.
type Hook func(ctx context.Context, e Event, err error, left time.Duration)

// Hooks run on a goroutine of their own, in order. Each may be nil.
type Hooks struct {
	Of         [eventKinds]Hook
	NoMessages func(server string, cause error)
}

// observers are the user's hooks and logger. They run on a goroutine of their own, in order: user code may block or
// call the locker, and the events happen under a lease's mutex.
type observers struct {
	hooks   Hooks
	ofHolds bool // a hook is set that gets a context
	logger  *slog.Logger
	relay   events.Relay
}

// offer queues an event, under mu or before the hold is registered. It may be dropped, and nothing depends on it.
func (o *observers) offer(what What, h *hold, err error, left time.Duration) {
	if hook := o.hooks.Of[what]; hook != nil {
		ctx, event := h.extra.ctx, h.event()
		o.relay.Offer(func() { hook(ctx, event, err, left) })
	}
}

// warn logs a fault, and info logs its end.
func (o *observers) warn(message string, attributes ...slog.Attr) {
	if o.logger.Handler() != slog.DiscardHandler {
		o.relay.Offer(func() { o.logger.LogAttrs(context.Background(), slog.LevelWarn, message, attributes...) })
	}
}

func (o *observers) info(message string, attributes ...slog.Attr) {
	if o.logger.Handler() != slog.DiscardHandler {
		o.relay.Offer(func() { o.logger.LogAttrs(context.Background(), slog.LevelInfo, message, attributes...) })
	}
}

// acquired counts and reports the grant of a hold, under mu. The end is reported only if the grant was, regardless of
// overflow in between, so that a hook that counts leases up and down comes out even, also over conversions. The grant
// is offered even if only a hook of an end is set: ends are always taken, and only the grants bound how many there are.
func (o *observers) acquired(h *hold) {
	h.e.counters.acquired.Add(1)
	hooks := &o.hooks.Of
	if hooks[OnAcquired] == nil && hooks[OnReleased] == nil && hooks[OnExpired] == nil && hooks[OnLost] == nil {
		return
	}
	ctx, event := h.extra.ctx, h.event()
	h.unobserved = !o.relay.Offer(func() {
		if hook := hooks[OnAcquired]; hook != nil {
			hook(ctx, event, nil, 0)
		}
	})
}

// final reports the end of a hold, or that its release has failed, under mu. Nothing else tells the caller of the
// failure, so it is offered even if the grant was dropped.
func (o *observers) final(what What, h *hold, err error) {
	hook := o.hooks.Of[what]
	switch {
	case hook == nil:
	case !h.unobserved:
		ctx, event := h.extra.ctx, h.event()
		o.relay.Final(func() { hook(ctx, event, err, 0) })
	case what == OnReleaseFailed:
		o.offer(what, h, err, 0)
	}
}

func (o *observers) warnOfLoss(h *hold, loss *Loss) {
	attributes := []slog.Attr{
		slog.String("lock", h.name), slog.String("hold", h.id), slog.Uint64("token", uint64(loss.Token)),
		slog.String("reason", string(loss.Reason)),
	}
	if loss.Limit > 0 {
		attributes = append(attributes, slog.Duration("limit", loss.Limit))
	}
	if cause := loss.Cause(); cause != nil {
		attributes = append(attributes, slog.Any("error", cause))
	}
	o.warn("lease lost", attributes...)
}

// warnOfRelease counts and logs the error that Release returns. The log and the error agree on whether the release
// continues.
func (o *observers) warnOfRelease(h *hold, failed *Error) {
	h.e.counters.unconfirmed.Add(1)
	message := "release not confirmed, trying again in the background"
	if !failed.Unknown {
		message = "release refused, the hold ends with its TTL"
	}
	o.warn(message,
		slog.String("lock", h.name), slog.Uint64("token", uint64(h.token())), slog.Any("error", failed))
}
