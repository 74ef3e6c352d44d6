package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/events"
	"github.com/seed74116694/fencelock/internal/transport"
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

// Hooks are called for events of an acquisition and of its lease, with the context of the acquisition without its end.
// Each may be nil. They run on a goroutine of their own, in order.
type Hooks struct {
	Waiting, Acquired, Renewed, Detached, Released, Expired func(context.Context, Event)

	Failed, ReleaseFailed func(context.Context, Event, error)

	AtRisk      func(context.Context, Event, time.Duration)
	Lost        func(context.Context, Event, *Loss)
	Unreachable func(context.Context, Event, error)
	NoMessages  func(server string, cause error)
}

// ofHolds reports whether a hook is set that gets a context.
func (h *Hooks) ofHolds() bool {
	return h.Waiting != nil || h.Acquired != nil || h.Renewed != nil || h.Detached != nil ||
		h.Released != nil || h.Expired != nil || h.Failed != nil || h.AtRisk != nil || h.Lost != nil ||
		h.ReleaseFailed != nil || h.Unreachable != nil
}

// observers are the user's hooks and logger. They run on a goroutine of their own, in order: user code may block or
// call the locker, and the events happen under a lease's mutex.
type observers struct {
	hooks  Hooks
	logger *slog.Logger
	relay  events.Relay
}

// offer queues an event for a hook, under mu. It may be dropped, and nothing depends on it.
func (o *observers) offer(hook func(context.Context, Event), h *hold) {
	if hook != nil {
		ctx, event := h.context(), h.event()
		o.relay.Offer(func() { hook(ctx, event) })
	}
}

// failed reports the end of an acquisition without a lease, under mu or before the hold is registered.
func (o *observers) failed(h *hold, failure error) {
	if hook := o.hooks.Failed; hook != nil {
		ctx, event := h.context(), h.event()
		o.relay.Offer(func() { hook(ctx, event, failure) })
	}
}

// atRisk reports how little trust is left of a hold that was not renewed, under mu.
func (o *observers) atRisk(h *hold, left time.Duration) {
	ctx, event, hook := h.context(), h.event(), o.hooks.AtRisk
	o.relay.Offer(func() { hook(ctx, event, left) })
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
	if hooks.Acquired == nil && hooks.Released == nil && hooks.Expired == nil && hooks.Lost == nil {
		return
	}
	ctx, event := h.context(), h.event()
	h.unobserved = !o.relay.Offer(func() {
		if hooks.Acquired != nil {
			hooks.Acquired(ctx, event)
		}
	})
}

// final reports the end of a hold by its holder, or as planned, under mu.
func (o *observers) final(hook func(context.Context, Event), h *hold) {
	if hook != nil && !h.unobserved {
		ctx, event := h.context(), h.event()
		o.relay.Final(func() { hook(ctx, event) })
	}
}

// releaseFailed reports the error of a release in the background, under mu.
func (o *observers) releaseFailed(h *hold, failure error) {
	if hook := o.hooks.ReleaseFailed; hook != nil {
		ctx, event := h.context(), h.event()
		o.relay.Final(func() { hook(ctx, event, failure) })
	}
}

// lost reports the end of a hold without its holder's wish, under mu.
func (o *observers) lost(h *hold, loss *Loss) {
	o.warnOfLoss(h, loss)
	if hook := o.hooks.Lost; hook != nil && !h.unobserved {
		ctx, event := h.context(), h.event()
		o.relay.Final(func() { hook(ctx, event, loss) })
	}
}

// warnOfAbsence notes that a master does not take the hold back, and logs it once, under the lease's mutex. The first
// answers of that kind are expected where another hold is yet to yield.
func (o *observers) warnOfAbsence(h *hold, m *transport.Master, a ballot.Answer) {
	const expected = 2
	if a.Status == ballot.IsGranted || a.Err != nil || h.unregained > expected {
		return
	}
	if h.unregained++; h.unregained > expected {
		o.warn("a lease stands without a master that does not take it back",
			slog.String("master", m.At(h.key.LockHash()).Addr()), slog.String("lock", h.name),
			slog.Int("masters", h.ballot.Votes().Standing(h.token())))
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
