package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

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

// mark is what shows the masters that a hold is left to another client: that one has the secret, and they have its
// hash. All attempts to detach a hold have one secret, so a late request of an earlier attempt changes nothing.
type mark struct {
	of           *hold
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
	// The round counts renewals from before the mark too.
	for err == nil && h.stillHeld() && m.standing() < h.e.masters.quorum() {
		l.mu.Unlock()
		err = l.Renew(ctx)
		h = l.lock()
	}
	switch {
	case err != nil:
		return Detached{}, err
	case !h.stillHeld():
		return Detached{}, l.done.err()
	}
	m.until = h.trust.until()
	now := h.e.clock.Now()
	d := Detached{
		Name: h.name, Mode: h.mode, Owner: h.owner(), Hold: h.id, Token: h.token(), Secret: m.secret,
		Set: h.e.masterSet.ID(), Left: h.trust.left(now),
	}
	h.e.counters.detached.Add(1)
	h.e.observers.offer(OnDetached, h, nil, 0)
	h.finish(ErrReleased)
	h.e.registry.forget(h.id)
	m.await(now)
	return d, nil
}

// beginMarking has all renewals from now on mark the hold, under mu.
func beginMarking(h *hold) *mark {
	if h.extra == nil {
		h.extra = &extra{limit: clock.Never}
	}
	if h.extra.mark == nil {
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
	r.Mark = m.hash
	r.Done = func(renewed bool, err error, sent clock.Instant) {
		m.of.lease.mu.Lock()
		_, broken := err.(*Breaker)
		m.on[master] = m.on[master] || err == nil || broken
		m.of.lease.mu.Unlock()
		done(renewed, err, sent)
	}
	return r
}

// standing returns on how many masters the hold stands with its mark, as far as is known, under mu.
func (m *mark) standing() (n int) {
	for i, on := range m.on {
		if vote := m.of.ballot.Vote(i); on && vote.Counts() && vote.Token == m.of.token() {
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
		e.timers.Set(&m.of.timer, m.of, now.Mono+min(max(left/retryShare, retryMin), m.of.keeping.stallAfter()))
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
			Renewal: wire.Renewal{Key: h.key, Hold: h.id, TTL: ttl, Token: h.token()}, Deadline: m.until,
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
func (e *Engine) Adopt(ctx context.Context, l *Lease, d Detached, terms *Terms) error {
	a := &adoption{d, e.newAcquisition(ctx, l.begin(), Request{
		Name: d.Name, Mode: d.Mode, Entry: Try, Terms: terms, From: d.Hold,
		adopts: wire.Adoption{Token: d.Token, Secret: d.Secret},
	})}
	a.hold.provisional = true
	a.hold.unclaimed = true
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

// The reasons why a hold cannot be adopted, if no operator has broken it, and what is known after a failure in between.
var (
	errOtherSet = errors.New("it is of other masters")
	errGone     = errors.New("its hold is gone: it has expired, or was adopted or released")
	errRival    = errors.New("another process is adopting it")
	errUntaken  = errors.New("the hold may have been released: if it was not, it can be adopted again")
)

// adopt returns nil if the lease is a caller's lease now.
func (a *adoption) adopt(ctx context.Context) error {
	if ctx.Err() == nil && a.isForeign(ctx) {
		return a.fail(&Error{Kind: Gone, Err: errOtherSet})
	}
	if err := a.run(ctx); err != nil {
		return a.ungranted(err.(*Error))
	}
	l, kept := a.hold.lease, false
	defer func() { // also if a method of ctx panics
		if !kept {
			l.ReleaseSoon()
		}
	}()
	if ctx.Err() != nil { // before the detached hold is released, so that it can be adopted again
		return a.fail(&Error{Kind: Contended, Err: errs.Cause(ctx)})
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

// isForeign reports whether the masters are known to be another set.
func (a *adoption) isForeign(ctx context.Context) bool {
	e := a.hold.e
	if several := len(e.masters) > 1; !several || a.from.Set == "" {
		return several != (a.from.Set != "")
	}
	known := e.masterSet.Check(ctx) == nil && e.masterSet.ID() != ""
	return known && e.masterSet.ID() != a.from.Set
}

// fail returns the failure as one of an adoption.
func (a *adoption) fail(f *Error) *Error {
	f.Op, f.Name, f.Mode, f.Need = OpAdopt, a.hold.name, a.hold.mode, a.hold.e.masters.quorum()
	return f
}

// ungranted returns the failure of an adoption that no quorum has granted. A minority that does not have the detached
// hold does not matter, and one that has granted another adoption may grant this one later.
func (a *adoption) ungranted(f *Error) *Error {
	if by, broken := f.Err.(*Breaker); broken {
		f.Kind, f.Err = Gone, by
	}
	a.hold.lease.mu.Lock()
	defer a.hold.lease.mu.Unlock()
	rivals, gone := a.hold.ballot.Votes().Unadopted()
	f.Got -= rivals + gone
	switch {
	case f.Kind != Contended || f.Err != nil:
	case gone > len(a.hold.e.masters)-f.Need:
		f.Kind, f.Err = Gone, errGone
	case rivals > 0:
		f.Err = errRival
	default:
		f.Kind = NoQuorum
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
	keys, proposal := e.keys.ForCall(nil, h.key), e.tokens.proposalAfter(l.Token())
	// The detaching process may have asked a master to take the hold back after it had lost it.
	late := wire.Tombstone{TTL: wire.FormatMillis(lateness), Several: true}
	until := e.clock.Now().Add(a.from.Left + e.cfg.NodeTimeout)
	for i := range e.masters {
		r := &g.releases[i]
		*r = release{
			of: e.releases[i], key: h.key, hold: a.from.Hold, tombstone: late, until: until, heir: h, job: g,
		}
		p := r.posting(keys, r.request(until).Args(nil), proposal)
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
	if failed.Kind != Gone && ctx.Err() != nil {
		failed.Err = errs.Cause(ctx)
	}
	return a.fail(failed)
}

// adopted returns nil if a quorum had the detached hold until now. A release without an answer may still run. One that
// failed is repeated only if the adoption succeeds: otherwise another process may adopt the hold.
func (g *giving) adopted() *Error {
	g.mu.Lock()
	found, causes := g.found(g.had, g.hadNot), g.causes()
	failed := &Error{Got: g.had}
	var again []func()
	if g.taken = found == confirmed; g.taken {
		again, g.postponed = g.postponed, nil
	}
	g.mu.Unlock()
	switch found {
	case confirmed:
		for _, release := range again {
			release()
		}
		return nil
	case gone:
		failed.Kind, failed.Err = Gone, errGone
	default:
		kind, forGood := g.h.e.masters.refusal(causes)
		failed.Kind, failed.Unknown, failed.Nodes, failed.Err = kind, !forGood, causes, errUntaken
	}
	return failed
}
