package engine

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/events"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/outage"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
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
	log     outage.Log // of servers that fail
	relay   events.Relay
}

// offer queues an event, under mu or before the hold is registered. It may be dropped, and nothing depends on it.
func (o *observers) offer(what What, h *driver, err error, left time.Duration) {
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

// warnOfServer logs the failure of a server, and what an operator does about it if that is known.
func (o *observers) warnOfServer(message string, n *transport.Node, cause error, more ...slog.Attr) {
	attributes := append([]slog.Attr{slog.String("master", n.Addr())}, more...)
	attributes = append(attributes, slog.Any("error", cause))
	if cure := transport.Cure(cause); cure != "" {
		attributes = append(attributes, slog.String("advice", cure))
	}
	o.warn(message, attributes...)
}

func (o *observers) info(message string, attributes ...slog.Attr) {
	if o.logger.Handler() != slog.DiscardHandler {
		o.relay.Offer(func() { o.logger.LogAttrs(context.Background(), slog.LevelInfo, message, attributes...) })
	}
}

// acquired counts and reports the grant of a hold, under mu. The end is reported only if the grant was, regardless of
// overflow in between, so that a hook that counts leases up and down comes out even, also over conversions. The grant
// is offered even if only a hook of an end is set: ends are always taken, and only the grants bound how many there are.
func (o *observers) acquired(h *driver) {
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
func (o *observers) final(what What, h *driver, err error) {
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

// lost counts, keeps and logs a loss, under the mu of its hold.
func (o *observers) lost(h *driver, loss *lockerr.Loss) {
	h.e.counters.lost(loss.Reason)
	h.e.losses.add(h, loss)
	attributes := []slog.Attr{
		slog.String("lock", h.name), slog.String("hold", h.id), slog.Uint64("token", uint64(loss.Token)),
		slog.String("reason", string(loss.Reason)),
	}
	if loss.Limit > 0 {
		attributes = append(attributes, slog.Duration("limit", loss.Limit))
	}
	if loss.Err != nil {
		attributes = append(attributes, slog.Any("error", loss.Err))
	}
	o.warn("lease lost", attributes...)
}

// warnOfRelease counts the error that Release returns, and logs it unless the log has been told of its servers. The log
// and the error agree on whether the release continues.
func (o *observers) warnOfRelease(h *driver, failed *lockerr.Error) {
	h.e.counters.unconfirmed.Add(1)
	var servers []string
	for _, node := range failed.Nodes {
		servers = append(servers, node.Addr)
	}
	if servers != nil && !o.log.Due(h.e.clock.Now().Mono, servers...) {
		return
	}
	message := "release not confirmed, trying again in the background"
	if !failed.Unknown {
		message = "release refused, the hold ends with its TTL"
	}
	o.warn(message,
		slog.String("lock", h.name), slog.Uint64("token", uint64(h.life.Token())), slog.Any("error", failed))
}

// HoldState shows one hold of this process at one moment.
type HoldState struct {
	Name, Owner, Hold, Meta string
	Mode                    fencing.Mode
	Token                   fencing.Token // 0 before the grant
	Shared                  bool          // goroutines share it: see Request.Block
	Converts                bool          // the second hold of a lease, before the exchange
	Asking                  bool          // not granted so far, or not to a caller: see MultiLock
	Age                     time.Duration // since the grant; while it asks, since the acquisition began
	Left                    time.Duration // how much longer it is trusted, if it is granted
	RenewalLate             bool          // less than half of its time is left, although it is renewed
	Failure                 error         // why its renewal is late, as far as that is known
	Holder                  *wire.Holder  // while it asks: a holder in the way, as last seen
	Unreachable             bool          // while it asks: no quorum answers
}

// LostLease is the end of a hold without its holder's wish.
type LostLease struct {
	Event
	Meta string
	At   time.Time
	Loss *lockerr.Loss
}

const keptLosses = 64

// losses has the last 64 losses of an engine. Its mutex is acquired under a lease's mutex, and no other under it.
type losses struct {
	mu   sync.Mutex
	kept []LostLease // at most keptLosses, the oldest first
}

// add records the loss of a hold, under the hold's mu.
func (l *losses) add(h *driver, loss *lockerr.Loss) {
	lost := LostLease{Event: h.event(), Meta: h.terms.Meta, At: time.Now(), Loss: loss}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept[max(len(l.kept)-keptLosses+1, 0):], lost)
}

// Stats counts what an Engine has done, and what it has now.
type Stats struct {
	Held          int
	Waiting       int
	Unreachable   int // waiting acquisitions that no quorum answers
	NoMessages    int // waiting acquisitions that ask at an interval, because messages are not available
	Acquired      uint64
	Contended     uint64
	HandedOff     uint64
	Adopted       uint64
	Detached      uint64
	Failed        Failures
	Lost          map[lockerr.Reason]uint64 // Expired too
	Unconfirmed   uint64                    // calls of Release without the confirmation of a quorum
	Renewed       uint64
	RenewFailed   uint64
	EventsDropped uint64
}

// Failures counts acquisitions that have failed, by their cause.
type Failures struct{ Contended, NoQuorum, Closed, Refused uint64 }

// counters are updated at the event, with or without the mutex of its lease. Each is exact by itself; two that are read
// one after the other may belong to different moments.
type counters struct {
	held, waiting                                                     atomic.Int64
	acquired, contended, handedOff, renewed, renewFailed, unconfirmed atomic.Uint64
	adopted, detached                                                 atomic.Uint64

	failures struct{ contended, noQuorum, closed, refused atomic.Uint64 }
	losses   [len(lockerr.Reasons)]atomic.Uint64 // of each of lockerr.Reasons
}

func (c *counters) lost(reason lockerr.Reason) {
	c.losses[slices.Index(lockerr.Reasons[:], reason)].Add(1)
}

// failed counts a failure by its kind. What is no *Error counts as refused.
func (c *counters) failed(failure error) {
	kind := lockerr.InvalidMasters
	if f, ok := failure.(*lockerr.Error); ok {
		kind = f.Kind
	}
	switch f := &c.failures; kind {
	case lockerr.Contended:
		f.contended.Add(1)
	case lockerr.NoQuorum:
		f.noQuorum.Add(1)
	case lockerr.Closed:
		f.closed.Add(1)
	default:
		f.refused.Add(1)
	}
}
