package engine

import (
	"context"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/wire"
)

type Request struct {
	Name  string
	Mode  fencing.Mode
	Owner string // a ULID; "" stands for the id of the hold
	Entry Entry
	Terms *Terms
	Block int    // size of the token block that a shared write hold wants; 0 if the hold is not shared
	From  string // the hold that is converted to this one, or ""

	Seen    fencing.Token // the largest token of the lock that a shared hold of this process had, or 0
	Claimed fencing.Token // token of the hold that a Join is for; 0 for the owner's largest

	// TokenInUse returns the token of the block that goroutines of the process use now, or 0; nil if the hold is not
	// shared. It is called under the lease's mutex and must not block.
	TokenInUse func() fencing.Token

	adopts     wire.Adoption // of From, if another process has detached it
	firstGrant time.Duration // of the hold that is converted, where it has a minimum
}

// Entry says how a request enters the lock.
type Entry = ballot.Entry

// The entries: wait in the queue; enter only if the lock is free; join the standing hold of the same owner; wait at the
// head of the queue until the remaining readers leave.
const (
	Wait    = ballot.Wait
	Try     = ballot.Try
	Join    = ballot.Join
	Upgrade = ballot.Upgrade
)

// Terms are the conditions of a lease. Requests share them, and they never change.
type Terms struct {
	hold.Terms
	MaxWait time.Duration // 0: until the context ends
	Meta    string

	BackgroundRelease bool // Release does not wait for the masters

	args struct{ ttl, handOff wire.Millis } // of scripts
}

// Prepare computes once what every request under these terms needs.
func (t Terms) Prepare() *Terms {
	t.HandOff = min(t.TTL, longestHandOff)
	t.args.ttl, t.args.handOff = wire.FormatMillis(t.TTL), wire.FormatMillis(t.HandOff)
	return &t
}

// keepArg is for how long a master is to keep a hold, as an argument of scripts: mostly for the TTL of the terms.
func (t *Terms) keepArg(keep time.Duration) wire.Millis {
	if keep == t.TTL {
		return t.args.ttl
	}
	return wire.FormatMillis(keep)
}

// longestHandOff bounds the life of a waiter, and the duration of a hand-off before its first renewal.
const longestHandOff = 3 * time.Second

// driver drives one hold: package hold decides, and the driver reports to it what happens, and carries out what
// follows. It has what the hold does not know: its names, its lease, its timer and its observers. A lease has one
// driver, and a second one while it converts. The mutex of the lease guards both, with their holds; "under mu" means
// that mutex. Thousands of drivers exist at once, so a driver has only the fields that every held hold needs: what only
// asking needs is in acquisition, and what few holds need is in extra.
type driver struct {
	e           *Engine
	lease       *Lease
	life        hold.Hold
	id          string // a ULID; changes where the acquisition starts again, and answers for the old id do not count
	name        string // of the lock
	key         string
	terms       *Terms
	extra       *extra           // nil for most
	begun       time.Duration    // start of the first attempt, by the monotonic clock
	acquisition *acquisition     // nil once asking is over
	timer       timerqueue.Timer // for the hold's next moment; set while it is held
	mode        fencing.Mode

	replaced    bool   // by a conversion: the lease stands on another hold
	unobserved  bool   // the hooks were not notified of the grant
	provisional bool   // not reported unless keep is called: see MultiLock
	contended   bool   // it was not granted at once
	waited      uint32 // ms from begun to the grant, at most 49 days; a time.Duration would make every lease larger
}

// extra has the fields for options that most leases lack, such as an owner that the caller named.
type extra struct {
	owner  string          // a ULID that the caller named, or ""
	ctx    context.Context // of the acquisition, without its end; for hooks, nil if there are none
	shared sharedHold
	done   *doneState   // of the second hold of a conversion; nil for a hold on which its lease stands
	mark   *mark        // of Detach, or nil
	renews []chan error // of the callers that wait for the round of renewals that is under way
}

func (h *driver) now() hold.Now {
	return hold.Now{Instant: h.e.clock.Now(), Terms: &h.terms.Terms, World: &h.e.world}
}

// current locks the lease, and reports whether an answer to a request for this id counts: it is for the current hold,
// which is not over. Otherwise the mutex is free again.
func (h *driver) current(id string) bool {
	h.lease.mu.Lock()
	if id == h.id && !h.life.IsOver() {
		return true
	}
	h.lease.mu.Unlock()
	return false
}

// fewEffects is how many effects of an event are on the stack.
const fewEffects = 8

// step reports an event to the hold and carries out what follows, under mu.
func (h *driver) step(e hold.Event) {
	var few [fewEffects]hold.Effect
	now := h.now()
	h.apply(now, h.life.Step(now, e, few[:0]))
}

// at is now at a moment that the caller has read. A decision of several steps reads the clocks once: the process may
// stand still between two readings, and a hold that stood at the first one would be lost at the second.
func (h *driver) at(moment clock.Instant) hold.Now {
	return hold.Now{Instant: moment, Terms: &h.terms.Terms, World: &h.e.world}
}

// stillHeld reports whether the hold is held, under mu. An end whose time has come is noticed here.
func (h *driver) stillHeld() bool { return h.heldAt(h.e.clock.Now()) }

func (h *driver) heldAt(moment clock.Instant) bool {
	if h.life.HasExpired(moment) {
		h.stepAt(moment, hold.Event{Kind: hold.Tick})
	}
	return h.life.Phase() == hold.Held
}

func (h *driver) stepAt(moment clock.Instant, e hold.Event) {
	now := h.at(moment)
	h.apply(now, h.life.Step(now, e, nil))
}

// endBy ends a hold that is held by an event of its caller, under mu, and appends the releases that the caller has to
// send. The hold may have been lost before.
func (h *driver) endBy(now hold.Now, kind hold.Kind, effects []hold.Effect) (releases []hold.Effect) {
	all := h.life.Step(now, hold.Event{Kind: kind}, effects)
	h.apply(now, all)
	return slices.DeleteFunc(all, func(f hold.Effect) bool { return f.Kind != hold.SendRelease })
}

// Fire is the timer's call at the hold's next moment. The timer may be late, or early because of a call that was under
// way when it was moved, so the hold finds what is due from the clocks.
func (h *driver) Fire(now clock.Instant) {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.step(hold.Event{Kind: hold.Tick}); h.life.Phase() == hold.Ended && h.extra != nil {
		h.extra.mark.goOn(now)
	}
}

// owner returns the ULID that the caller named, or the hold's own id: then only this hold has that owner.
func (h *driver) owner() string {
	if h.extra != nil && h.extra.owner != "" {
		return h.extra.owner
	}
	return h.id
}

// block returns how many tokens a shared hold asks for; 0 for all other holds.
func (h *driver) block() int {
	if h.extra == nil {
		return 0
	}
	return h.extra.shared.block
}

// details returns the text that a master stores with the hold: its mode, owner, route and meta. A waiter that is not
// refreshed lives for the time of claim.
func (h *driver) details(route wire.Route, converts string, claim wire.Millis) string {
	d := wire.Details{Mode: h.mode, HandoffTTL: claim, Converts: converts, Route: route, Meta: h.terms.Meta}
	if h.extra != nil {
		d.Owner, d.Block = h.extra.owner, h.extra.shared.block
		return d.Text()
	}
	described := &h.e.described[h.mode]
	last := described.Load()
	if last == nil || last.details != d {
		last = &description{d, d.Text()}
		described.Store(last)
	}
	return last.text
}

// description is the text of details. Mostly all holds of an engine in one mode have the same.
type description struct {
	details wire.Details
	text    string
}

// event describes the hold as it is now, under mu.
func (h *driver) event() Event {
	return Event{
		Name: h.name, Mode: h.mode, Owner: h.owner(), Hold: h.id, Token: h.life.Token(),
		Since: h.e.clock.Now().Mono - h.begun, Contended: h.contended,
	}
}

// isStanding reports whether the lease stands on this hold, which is not so for a second hold before the exchange.
func (h *driver) isStanding() bool { return h.lease.standing.Load() == h }

// done returns where the hold's end is noted: at the lease, or for a second hold before the exchange at that hold.
func (h *driver) done() *doneState {
	if h.extra != nil && h.extra.done != nil {
		return h.extra.done
	}
	return &h.lease.done
}

// need returns what few holds need, for one that does.
func (h *driver) need() *extra {
	if h.extra == nil {
		h.extra = new(extra)
	}
	return h.extra
}

// closed returns the failure of a call that Close has left without a hold.
func (h *driver) closed() *lockerr.Error {
	return &lockerr.Error{
		Op: lockerr.OpAcquire, Kind: lockerr.Closed, Name: h.name, Mode: h.mode, Need: h.e.masters.quorum(),
		Err: lockerr.ErrClosed,
	}
}

// releaseSoon ends a hold that is held, or is kept for its holder, under mu, and gives it back in the background.
func (h *driver) releaseSoon() { h.step(hold.Event{Kind: hold.Release, Way: hold.AtOnce}) }

// Inherit ends the hold because the hold before it was broken, although this process released that one without knowing.
// An acquisition that asks again goes on under its next id, a lease that was converted with the hold in the other mode.
// An operator broke hold A just as it restarted as B, say, and a message that names A is not for B. So the answer to
// A's release ends B.
func (h *driver) Inherit(by *wire.Breaker) {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.replaced { // by a conversion, while the release was on its way
		h = h.lease.standing.Load()
	}
	h.step(hold.Event{Kind: hold.Broken, By: by, Keeps: !by.Now})
}

// setContended records that a waiter in another process is behind this hold, under mu. There are two sources of that: a
// message, which is sent once, for the first waiter that queues, and may be lost; and the answer to a renewal.
func (h *driver) setContended() {
	if h.extra == nil { // not shared
		return
	}
	shared := &h.extra.shared
	shared.contended = true
	if f := shared.onContended; f != nil {
		shared.onContended = nil
		h.lease.mu.afterUnlock(f)
	}
}

// state returns what Holds shows of the hold, and whether it has not ended, under mu.
func (h *driver) state() (s HoldState, stands bool) {
	if held := h.stillHeld(); !held && h.life.IsOver() {
		return s, false
	}
	now := h.now()
	s = HoldState{
		Name: h.name, Owner: h.owner(), Hold: h.id, Meta: h.terms.Meta, Mode: h.mode, Token: h.life.Token(),
		Shared: h.block() > 0, Converts: !h.isStanding(),
	}
	if h.life.Phase() == hold.Asking || h.provisional {
		s.Asking, s.Token, s.Age = true, 0, now.Mono-h.begun
		if h.acquisition != nil {
			s.Holder, s.Unreachable = h.acquisition.holder, h.acquisition.cutOff()
		}
		return s, true
	}
	waited := time.Duration(h.waited) * time.Millisecond
	s.Age, s.Left = now.Mono-h.begun-waited, h.life.Ends()-now.Mono
	if s.RenewalLate = h.life.IsLate(now); s.RenewalLate {
		s.Failure = h.failures(h.life.Failures())
	}
	return s, true
}

// sharedHold belongs to a hold that the goroutines of an RWMutex share. It has a block of tokens, one for each writer,
// and knows whether another process waits for the lock. The lease's mutex guards it.
//
// A token block begins with the token that any other grant would get, has the size that was asked for, and ends at most
// a second ahead of the master's clock. Several masters would each cut it off at their own clock, so the client asks
// for less before that (Budget of tokens.Floor). Each master reports where its block begins; the lease may use the
// tokens from the largest of these on. Raises, renewals and releases name the last token, which is the master's
// counter.
type sharedHold struct {
	block       int                  // size of the token block to ask for; 0: the hold is not shared
	first       fencing.Token        // first token of the granted block
	tokenInUse  func() fencing.Token // see Request
	contended   bool                 // set until the hold ends, or until ResetContended
	onContended func()               // called once when contended is set; nil before OnContended and after the call
}
