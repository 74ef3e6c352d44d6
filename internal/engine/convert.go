package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/ctxend"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/releases"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Convert takes the lock in the other mode without a gap: a new hold is granted while the old one still stands, and
// only then the old one is released. So a caller that fails or gives up keeps what it had. The entry of a reader that
// upgrades is Upgrade, to wait for the other readers to leave, or Try. The entry of a writer that downgrades is Try.
// The lease stays the same, with a new token. If goroutines of the process share the lease, alone is called between the
// grant and the exchange and returns when the other goroutines have left; otherwise alone is nil. The error is a
// *Error, also if the new hold is lost while the other goroutines leave, or the error of alone, or the end of the
// lease. The old hold is released before Convert returns, or in the background once ctx has ended or the release
// timeout is over.
func (l *Lease) Convert(
	ctx context.Context, mode fencing.Mode, entry Entry, alone func(context.Context) error,
) error {
	r, err := l.conversion(mode)
	if err != nil {
		return err
	}
	r.Entry = entry
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	remove := l.OnEnd(func(end error) { ctxend.Cancel(cancel, end) })
	defer remove()
	into := &driver{lease: l, extra: &extra{done: new(doneState)}}
	c := converting{l, into}
	err = newAcquisition(within, l.standing.Load().e, into, r).run(within)
	if err == nil && alone != nil {
		err = c.keepUntil(within, cancel, alone)
	}
	if err != nil {
		l.mu.Lock()
		into.releaseSoon()
		l.mu.Unlock()
		if end := l.Err(); end != nil {
			return end
		}
		if f, failed := err.(*lockerr.Error); failed && contradicts(f, mode) {
			if loss, lost := l.Renew(ctx).(*lockerr.Loss); lost {
				return loss
			}
		}
		return err
	}
	return c.exchange(ctx)
}

// conversion returns the request for the hold in the other mode. The request names the hold that it replaces, so that a
// master does not let the two wait for each other.
func (l *Lease) conversion(mode fencing.Mode) (r Request, err error) {
	h := l.lock()
	defer l.mu.Unlock()
	if !h.stillHeld() {
		return r, l.done.err()
	}
	terms := h.terms
	now := h.now()
	if ttl := h.life.TTL(&now); ttl != terms.TTL {
		changed := *terms
		changed.TTL = ttl
		terms = changed.Prepare()
	}
	r = Request{Name: h.name, Mode: mode, Terms: terms, From: h.id}
	if r.firstGrant = h.life.First(); h.extra != nil {
		r.Owner, r.Block = h.extra.owner, h.extra.shared.block
	}
	if r.Block > 0 {
		r.Seen, r.TokenInUse = h.life.Token(), h.extra.shared.tokenInUse
	}
	return r, nil
}

// converting is a conversion of a lease whose second hold is granted.
type converting struct {
	l    *Lease
	into *driver
}

// keepUntil keeps the second hold until alone returns. The end of the hold ends ctx, by cancel.
func (c converting) keepUntil(
	ctx context.Context, cancel func(error), alone func(context.Context) error,
) error {
	h := c.into
	h.lease.mu.Lock()
	h.done().add(&cancel, &h.lease.mu)
	h.lease.mu.Unlock()
	err := alone(ctx)
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if !h.stillHeld() { // the error of alone would only be the end of ctx
		return c.untaken()
	}
	return err
}

// contradicts reports whether the hold that refused a conversion to this mode excludes the hold of the lease. A reader
// wants to write, say, and another process is the writer: then the lease itself may be gone, and the masters are asked.
func contradicts(refusal *lockerr.Error, mode fencing.Mode) bool {
	refused := refusal.Kind == lockerr.Contended && refusal.Err == nil
	return refused && (mode == fencing.Read || refusal.Holder != nil && refusal.Holder.Mode == fencing.Write)
}

// untaken returns the failure of a conversion whose second hold has ended before the exchange, under mu: lost, or by
// Close, which ends the lease too. It does not match the loss of that hold, because the lease keeps its standing hold.
func (c converting) untaken() *lockerr.Error {
	h := c.into
	f := h.closed()
	loss, lost := h.done().err().(*lockerr.Loss)
	if !lost {
		return f
	}
	f.Kind = lockerr.Contended
	if loss.Reason == lockerr.Broken {
		f.Err = loss.Err
		return f
	}
	f.Err = fmt.Errorf("the %s hold was granted and lost before the conversion ended: %s", h.mode, loss.Reason)
	if loss.Reason == lockerr.Unreachable {
		nodes, _ := loss.Err.(lockerr.NodeFailures)
		f.Kind, f.Nodes, f.Got = lockerr.NoQuorum, nodes, min(len(h.e.masters)-len(nodes), f.Need-1)
	}
	return f
}

// exchange replaces the standing hold by the second one, if the standing one has stood until now. Otherwise another
// client may have held the lock in between (case upgrade-unheld of the model: a read that was not valid any more became
// a write, and another client had written in between). If the second hold itself has ended since it was granted, the
// error is untaken, and the lease keeps its hold.
func (c converting) exchange(ctx context.Context) error {
	l, e, into := c.l, c.into.e, c.into
	e.pending.add(+1) // before the registry forgets the old hold, so that Close sees one of the two
	defer e.pending.add(-1)
	from := l.lock()
	now := e.clock.Now() // once for both holds: see driver.at
	if !from.heldAt(now) {
		defer l.mu.Unlock()
		into.releaseSoon()
		return l.done.err()
	}
	if !into.heldAt(now) { // between its grant and now
		defer l.mu.Unlock()
		into.releaseSoon()
		return c.untaken()
	}
	// The subscribers stay with the lease: the release of the old hold must not end their contexts.
	from.need().done, into.extra.done = into.extra.done, nil
	l.standing.Store(into) // before the end of the trust in the old hold, for readers without the mutex
	into.stepAt(now, hold.Event{Kind: hold.Exchange, From: &from.life, Sent: e.lastUnanswered()})
	stands := from.life.Until()
	releases := from.endBy(from.at(now), hold.Replace, nil)
	from.replaced = true
	from.endRound(errReplaced)
	l.mu.Unlock()
	_, gone := giveBack(ctx, true, from, into, releases, awaited).(*lockerr.Loss)
	h := l.lock()
	defer l.mu.Unlock()
	switch {
	case !h.stillHeld(): // it was lost while the release had no answer
	case gone && !stands.Passed(e.clock.Now()):
		// A hold that is gone before its time, because the masters have lost it or their clocks were set, was no lock when
		// the new one was granted: another client may have written in between.
		h.step(hold.Event{Kind: hold.Lose, Loss: &hold.Loss{Reason: hold.Taken}})
	default:
		return nil
	}
	return l.done.err()
}

// errReplaced ends the round of a hold that a conversion has replaced. The goroutines that wait for the round go on
// with the hold on which the lease stands now.
var errReplaced = errors.New("the hold was replaced")

// Detached is a hold that its process has left to another process. The masters keep it, and no process relies on it.
type Detached struct {
	Name        string
	Mode        fencing.Mode
	Owner, Hold string
	Token       fencing.Token
	Secret      string        // of the mark that the masters have of the hold
	Set         string        // of masters; "" for a single one
	Left        time.Duration // for how long from now a quorum keeps it, at least
}

// mark has the secret of the client that gets the hold; the masters have its hash. All attempts to detach a hold have
// one secret, so a late request of an earlier attempt changes nothing.
type mark struct {
	of           *driver
	secret, hash string
	on           []bool        // of each master: it has confirmed the mark, or has nothing to mark
	asked        []bool        // of each master, once the hold is detached: it is asked
	until        clock.Instant // of a detached hold: for how long it is kept
}

// Detach renews the lease for this TTL, or its own if that is 0, has the masters mark its hold, and ends it without a
// release once a quorum has confirmed both. Otherwise the lease stands, with that TTL, and the error is that of SetTTL.
// Masters may have the mark then, and no client has its secret. The lease has ended when Detach returns, so no
// goroutine relies on it while another process does. A renewal from before may arrive later: it names the token, and
// moves the expiry of a hold on which no process relies.
func (l *Lease) Detach(ctx context.Context, ttl time.Duration) (Detached, error) {
	m := beginMarking(l.lock())
	l.mu.Unlock()
	err := l.SetTTL(ctx, ttl)
	h := l.lock()
	defer l.mu.Unlock()
	now := h.e.clock.Now()
	// The round counts renewals from before the mark too.
	for err == nil && h.heldAt(now) && m.standing() < h.e.masters.quorum() {
		l.mu.Unlock()
		err = l.Renew(ctx)
		h, now = l.lock(), h.e.clock.Now()
	}
	switch {
	case err != nil:
		return Detached{}, err
	case !h.heldAt(now):
		return Detached{}, l.done.err()
	}
	m.until = h.life.Until()
	d := Detached{
		Name: h.name, Mode: h.mode, Owner: h.owner(), Hold: h.id, Token: h.life.Token(), Secret: m.secret,
		Set: h.e.masterSet.ID(), Left: m.until.Mono - now.Mono,
	}
	h.e.counters.detached.Add(1)
	h.e.observers.offer(OnDetached, h, nil, 0)
	h.stepAt(now, hold.Event{Kind: hold.Release, Way: hold.ByHeir})
	m.await(now)
	return d, nil
}

// beginMarking has all renewals from now on mark the hold, under mu.
func beginMarking(h *driver) *mark {
	if h.need().mark == nil {
		secret, n := rand.Text(), len(h.e.masters)
		h.extra.mark = &mark{h, secret, wire.MarkOf(secret), make([]bool, n), make([]bool, n), clock.Instant{}}
	}
	clear(h.extra.mark.on) // a master may have lost the hold, and been given it back without its mark
	return h.extra.mark
}

// addTo has a renewal mark the hold on this master, under mu, unless the master has confirmed the mark.
func (m *mark) addTo(r *transport.Renewal, master int) *transport.Renewal {
	if m == nil || m.on[master] {
		return r
	}
	done := r.Done
	r.Kind += "#" + m.hash
	r.Done = func(renewed bool, err error, sent clock.Instant) {
		m.of.lease.mu.Lock()
		_, broken := err.(*wire.Breaker)
		m.on[master] = m.on[master] || err == nil || broken
		m.of.lease.mu.Unlock()
		done(renewed, err, sent)
	}
	return r
}

// standing returns on how many masters the hold stands with its mark, as far as is known, under mu.
func (m *mark) standing() (n int) {
	for i, on := range m.on {
		if vote := &m.of.life.Votes()[i]; on && vote.Counts() && vote.Token == m.of.life.Token() {
			n++
		}
	}
	return n
}

// await sets the timer of a detached hold for the masters that may lack its mark, under mu. They are asked again, or
// the ticket would be good only as long as the other masters are there.
func (m *mark) await(now clock.Instant) {
	e := m.of.e
	if left := m.until.Mono - now.Mono; left > 0 && slices.Contains(m.on, false) {
		e.timers.Set(&m.of.timer, m.of, now.Mono+min(hold.RetryAfter(left), e.stallAfter()))
	}
}

// goOn asks the masters that may lack the mark of a detached hold, under mu.
func (m *mark) goOn(now clock.Instant) {
	if m == nil || m.until.Passed(now) {
		return
	}
	h := m.of
	for i, master := range h.e.masters {
		if m.on[i] || m.asked[i] {
			continue
		}
		m.asked[i] = true
		ttl := wire.FormatMillis(m.until.Mono - now.Mono)
		renewal := &transport.Renewal{
			Renewal: h.renewal(ttl, h.life.Token()), Deadline: m.until,
			Done: func(bool, error, clock.Instant) {
				h.lease.mu.Lock()
				m.asked[i] = false
				h.lease.mu.Unlock()
			},
		}
		master.Renew(m.addTo(renewal, i))
	}
	m.await(now)
}

// Adopt goes on with a hold that another process has detached, as a conversion of that hold: a hold of this process is
// granted while the detached one stands, and then the detached one is released. A master grants an adoption only while
// the detached hold stands there with its token and mark and no other adopter does. So no client comes in between, and
// an adopter that fails leaves the detached hold to others.
//
// At most one adoption of a hold succeeds: it needs a quorum of masters that had the hold when they were asked to
// release it, and a master that has released it does not get it back. No clock is part of that.
func (d Detached) Adopt(ctx context.Context, e *Engine, l *Lease, terms *Terms) error {
	a := &adoption{d, newAcquisition(ctx, e, l.begin(), Request{
		Name: d.Name, Mode: d.Mode, Entry: Try, Terms: terms, From: d.Hold,
		adopts: wire.Adoption{Token: d.Token, Secret: d.Secret},
	})}
	a.hold.provisional = true
	a.hold.step(hold.Event{Kind: hold.Disclaim})
	if err := a.adopt(ctx); err != nil {
		a.hold.lease.mu.Lock()
		defer a.hold.lease.mu.Unlock()
		a.hold.provisional = false
		a.report(err)
		return err
	}
	e.counters.adopted.Add(1)
	return nil
}

// adoption is one call of Adopt. Its hold is provisional until the detached one is released.
type adoption struct {
	from Detached
	*acquisition
}

// Why a hold cannot be adopted; errUntaken is for a failure after some masters were asked to release it.
var (
	errOtherSet = errors.New("it is of other masters")
	errGone     = errors.New("its hold is gone: it has expired, or was adopted or released")
	errRival    = errors.New("another process is adopting it")
	errUntaken  = errors.New("the hold may have been released: if it was not, it can be adopted again")
)

// adopt returns nil if the lease is a caller's lease now.
func (a *adoption) adopt(ctx context.Context) error {
	if ctx.Err() == nil && a.isForeign(ctx) {
		return a.fail(&lockerr.Error{Kind: lockerr.Gone, Err: errOtherSet})
	}
	if err := a.run(ctx); err != nil {
		return a.ungranted(err.(*lockerr.Error))
	}
	l, kept := a.hold.lease, false
	defer func() { // also if a method of ctx panics
		if !kept {
			l.ReleaseSoon()
		}
	}()
	if ctx.Err() != nil { // before the detached hold is released, so that it can be adopted again
		return a.fail(&lockerr.Error{Kind: lockerr.Contended, Err: errs.Cause(ctx)})
	}
	if err := a.takeOver(ctx); err != nil {
		return err
	}
	l.claim()
	if kept = l.keep(); kept {
		return nil
	}
	return l.endUnkept()
}

// isForeign reports whether the detached hold is of another set of masters, as far as that is known.
func (a *adoption) isForeign(ctx context.Context) bool {
	e := a.hold.e
	if several := len(e.masters) > 1; !several || a.from.Set == "" {
		return several != (a.from.Set != "")
	}
	known := e.masterSet.Check(ctx) == nil && e.masterSet.ID() != ""
	return known && e.masterSet.ID() != a.from.Set
}

// fail completes the failure of an adoption.
func (a *adoption) fail(f *lockerr.Error) *lockerr.Error {
	f.Op, f.Name, f.Mode, f.Need = lockerr.OpAdopt, a.hold.name, a.hold.mode, a.hold.e.masters.quorum()
	return f
}

// ungranted returns the failure of an adoption that no quorum has granted. It is final if so many masters lack the
// detached hold that no quorum has it. A master that has granted another adoption may grant this one later.
func (a *adoption) ungranted(f *lockerr.Error) *lockerr.Error {
	if by, broken := f.Err.(*wire.Breaker); broken {
		f.Kind, f.Err = lockerr.Gone, by
	}
	a.hold.lease.mu.Lock()
	defer a.hold.lease.mu.Unlock()
	rivals, gone := a.hold.life.Votes().Unadopted()
	f.Got -= rivals + gone
	switch {
	case f.Kind != lockerr.Contended || f.Err != nil:
	case gone > len(a.hold.e.masters)-f.Need:
		f.Kind, f.Err = lockerr.Gone, errGone
	case rivals > 0:
		f.Err = errRival
	default:
		f.Kind = lockerr.NoQuorum
	}
	return a.fail(f)
}

// takeOver has the masters release the detached hold, and returns nil once a quorum had it until then. The end of ctx,
// and the release timeout, end the wait.
func (a *adoption) takeOver(ctx context.Context) error {
	h := a.hold
	e, l := h.e, h.lease
	within, cancel := context.WithTimeout(ctx, e.cfg.ReleaseTimeout)
	defer cancel()
	g := newGiving(h, h, adopting)
	keys, proposal := e.keys.ForCall(nil, h.key), e.tokens.ProposalAfter(l.Token())
	// The detaching process may have asked a master to take the hold back after it had lost it.
	until := e.clock.Now().Add(a.from.Left + e.cfg.NodeTimeout)
	former := releases.Release{Key: h.key, Hold: a.from.Hold, Until: until, Heir: h, Floor: proposal}
	former.Tombstone = wire.Tombstone{TTL: wire.FormatMillis(hold.Lateness), Strays: true}
	for i, m := range e.masters {
		r := &g.parts[i]
		*r = part{Release: former, g: g, m: m}
		p := r.posting(keys, r.Request(until).Args(nil))
		p.m.Post(p.call)
	}
	select {
	case <-g.certain:
	case <-within.Done():
	case <-l.Done():
	}
	if end := l.endUnkept(); end != nil {
		return end
	}
	failed := g.adopted()
	if failed == nil {
		return nil
	}
	if failed.Kind != lockerr.Gone && ctx.Err() != nil {
		failed.Err = errs.Cause(ctx)
	}
	return a.fail(failed)
}

// adopted returns nil if a quorum had the detached hold until now. A release without an answer may still run. One that
// failed is repeated only if the adoption succeeds: otherwise another process may adopt the hold.
func (g *giving) adopted() *lockerr.Error {
	g.mu.Lock()
	found, causes := g.answers.Found(), g.causes()
	had, _ := g.answers.Had()
	failed := &lockerr.Error{Got: had}
	var again []func()
	if g.taken = found == hold.Shown; g.taken {
		again, g.postponed = g.postponed, nil
	}
	g.mu.Unlock()
	switch found {
	case hold.Shown:
		for _, release := range again {
			release()
		}
		return nil
	case hold.WasGone:
		failed.Kind, failed.Err = lockerr.Gone, errGone
	default:
		kind, forGood := causes.Refusal(g.h.e.masters)
		failed.Kind, failed.Unknown, failed.Nodes, failed.Err = kind, !forGood, causes, errUntaken
	}
	return failed
}
