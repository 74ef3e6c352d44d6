package engine

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/crowd"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/tokens"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// acquisition asks for a hold until it is granted or given up. The mutex of the hold's lease guards it, and the hold
// drops it once asking is over.
type acquisition struct {
	hold     *driver
	entry    Entry
	converts string         // the hold that is converted to this one, or ""
	adopts   wire.Adoption  // of that hold, if another process has detached it
	claimed  fencing.Token  // of the hold that a Join is for, or 0
	began    time.Duration  // the time in the ids of its holds: the start of the first attempt; see tokens.Floor.Ahead
	route    wire.Route     // how messages about the hold reach this process
	detail   string         // what a master stores of the hold unchanged
	made     string         // the request for the first of its holds, if that is like the last one
	proposal int64          // the token floor for the requests of the current hold
	seen     fencing.Token  // largest token of the lock that a shared hold, or the adopted one, has had; 0 for others
	posted   *posted        // what the posted requests for the current hold have in common; nil before the first
	sent     int            // requests
	former   string         // the last of those holds, or ""
	errs     []error        // of each master, from the former hold
	holder   *wire.Holder   // a holder in the way of the current hold, as last seen; never the former hold
	behind   uint64         // a bit for each master: its request left while this process gave back a hold there
	unsent   bool           // the request to a single master has not left; of the goroutine that asks
	waiting  bool           // in the count of waiters
	queued   bool           // in wait sets
	crowded  bool           // as many asked before it as one lock may have
	alone    bool           // travels in no group
	seat     *seat          // in the crowd for its lock; nil if it is not counted
	wakeUps  uint64         // count of the engine before the first request
	ready    chan struct{}  // closed at the end; made by the waiter
	asked    chan struct{}  // signals to the waiter that several masters are asked again
	failed   *lockerr.Error // why it ended without a lease
}

// newAcquisition fills in a hold for a request and prepares the first attempt. The hold is the first one of a lease, or
// the second one of a conversion.
func newAcquisition(ctx context.Context, e *Engine, h *driver, r Request) *acquisition {
	now := e.clock.Now()
	a := &acquisition{hold: h, entry: r.Entry, converts: r.From, adopts: r.adopts, claimed: r.Claimed, began: now.Wall}
	a.seen = max(r.Seen, r.adopts.Token)
	h.e, h.acquisition = e, a
	h.name, h.mode, h.terms, h.begun = r.Name, r.Mode, r.Terms, now.Mono
	id := ulidText(a.began)
	like := wire.Acquire{TTL: r.Terms.args.ttl}
	if last := e.described[r.Mode].Load(); last != nil {
		like.Details = last.text
	}
	h.id, a.made, h.key = e.keys.NewHold(id[:], like, r.Name)
	observed := e.observers.ofHolds
	if r.Owner != "" || r.Block > 0 || r.Terms.MinHold > 0 || r.Terms.MaxHold > 0 || observed {
		shared := sharedHold{block: e.tokens.Budget(r.Block, r.Seen), tokenInUse: r.TokenInUse}
		h.need().owner, h.extra.shared = r.Owner, shared
		if observed {
			h.extra.ctx = context.WithoutCancel(ctx)
		}
	}
	if r.Block > 0 {
		for _, m := range e.masters { // the holder of a shared hold learns about waiters in other processes
			m.Listen(h.key)
		}
	}
	second := h.extra != nil && h.extra.done != nil
	h.life.Init(&r.Terms.Terms, r.Entry, len(e.masters), second, r.firstGrant)
	a.describe()
	return a
}

// admit registers the hold, which is complete: from then on messages and Close find it. It fails where ctx has ended,
// the masters are no usable set, or the engine is closed.
func (a *acquisition) admit(ctx context.Context) *lockerr.Error {
	e := a.hold.e
	if ctx.Err() != nil {
		return a.refuse(lockerr.Contended, errs.Cause(ctx))
	}
	if err := e.masterSet.Check(ctx); err != nil {
		return a.refuse(lockerr.InvalidMasters, err)
	}
	if len(e.masters) > 1 { // one master queues by arrival
		if ahead := e.tokens.Ahead(); ahead != 0 { // only now are the clocks known to a new process
			a.began += ahead
			a.hold.id = newULID(a.began)
		}
	}
	if !e.registry.add(a.hold) {
		return a.refuse(lockerr.Closed, lockerr.ErrClosed)
	}
	if a.entry == Wait {
		a.crowded = e.crowds.Asking.Add(1) > crowd.Near
	}
	// Read before the request is sent, for add to compare: a later subscription may have missed the grant.
	a.wakeUps = e.wakeUps.Load()
	return nil
}

// refuse returns the failure of an acquisition before its first request: the masters have nothing to release.
func (a *acquisition) refuse(kind lockerr.Kind, cause error) *lockerr.Error {
	f := a.failure(kind, cause)
	a.report(f)
	return f
}

// run sends the requests and waits. If a method of ctx panics, no caller gets the lease, so the hold is given back.
func (a *acquisition) run(ctx context.Context) error {
	if refused := a.admit(ctx); refused != nil {
		return refused
	}
	e, returned := a.hold.e, false
	a.alone = e.contentions.Any.Load() && e.contentions.Lately(a.hold.name, a.hold.begun)
	defer func() {
		if !returned {
			a.abandon()
		}
	}()
	if a.crowded && a.isKeptBack() {
		// Whoever leaves the crowd asks for it.
	} else if len(e.masters) == 1 && !e.replicated && !e.releases[0].Leaving.Any(a.hold.key) { // else behind that
		a.askDirectly(ctx, e.masters[0])
	} else {
		a.asked = make(chan struct{}, 1)
		a.askAll()
	}
	await(ctx, a)
	returned = true
	return a.outcome()
}

// seat is the place of an acquisition in the crowd for its lock.
type seat = crowd.Seat[*acquisition]

// isKeptBack counts the acquisition for its lock, and reports whether it waits for its turn to ask.
func (a *acquisition) isKeptBack() bool {
	h := a.hold
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.acquisition == nil {
		return false
	}
	var asks bool
	if a.seat, asks = h.e.crowds.Take(h.name, a); asks {
		return false
	}
	a.asked = make(chan struct{}, 1)
	a.waits()
	return true
}

// describe updates the details that masters get of the hold. They are made once for all masters and all requests,
// because a route changes only where a listener follows a master to another server.
func (a *acquisition) describe() {
	if route := a.hold.e.masters.route(a.hold.key); route != a.route {
		a.route, a.detail = route, a.hold.details(route, a.converts, a.hold.terms.args.handOff)
		if a.posted != nil {
			a.posted.args = a.args(nil)
		}
	}
}

// askDirectly sends the request to a single master on the caller's goroutine, so that the uncontended case is one round
// trip without another goroutine. It is not used with replicas: a call that counts only once replicas have it goes over
// a connection of its own.
func (a *acquisition) askDirectly(ctx context.Context, m *transport.Master) {
	h := a.hold
	var array [6]string
	var keys [2]string
	h.lease.mu.Lock()
	if a.hold.acquisition == nil { // Close was called since it was registered, and releases nothing that was not sent
		h.lease.mu.Unlock()
		return
	}
	var one [1]hold.Effect
	h.life.Step(h.now(), hold.Event{Kind: hold.Begin}, one[:0]) // asks this master, as is done here
	a.sending(m)
	id, args := h.id, a.args(array[:0])
	h.lease.mu.Unlock()
	r, sent := m.Do(ctx, 0, a.script(m), h.e.keys.ForCall(keys[:0], h.key), wire.Vote{}, args)
	// The caller did not wait for the answer, so the answer is unknown. The vote stays asked, and the release leaves a
	// tombstone, unless the request has never left.
	if err := r.NonRedisError(); err != nil && ctx.Err() != nil {
		a.unsent = transport.DidNotRun(err)
		return // await sees the same end of ctx, and a master that has not answered
	}
	a.answered(m, id, r, sent)
}

// askAll posts the request to every master. All get the same proposal, so that they mint the same token where none of
// them has counted further. Then no grant has to be raised.
func (a *acquisition) askAll() {
	a.hold.lease.mu.Lock()
	defer a.hold.lease.mu.Unlock()
	if a.hold.acquisition != nil { // as in askDirectly
		a.proposal = a.hold.e.tokens.ProposalAfter(a.seen)
		a.hold.step(hold.Event{Kind: hold.Begin})
	}
}

// request posts a request for the hold to a master, under mu. An urgent one is the first.
func (a *acquisition) request(f *hold.Effect) {
	m := a.hold.e.masters[f.Master]
	if f.Token > 0 { // beyond what it has given back there: a smaller token would not count
		a.proposal = a.hold.e.tokens.ProposalAfter(f.Token)
	}
	m.Post(a.call(m, f.Urgent))
}

// call returns the request, which is about to be posted, under mu. The answer is matched with the hold that is current
// now, because the acquisition may be at its next attempt when the answer arrives. A request may be sent twice: a
// script that finds its hold granted or queued answers with that state.
func (a *acquisition) call(m *transport.Master, urgent bool) transport.Call {
	a.sending(m)
	p := a.posted
	switch {
	case p == nil:
		p = a.newPosted()
		a.posted = p
	case a.hold.terms.MinHold > 0: // what is left of it has become less
		p.args = a.args(nil)
	}
	return transport.Call{
		Script: a.script(m), Keys: p.keys, Vote: m.Vote(a.proposal), Args: p.args, To: &p.queries[m.Index], Hold: a.hold.id,
		Urgent: urgent, Replicated: true,
	}
}

// posted is what the posted requests for one hold have in common.
type posted struct {
	keys, args []string
	queries    []query // one for each master
}

func (a *acquisition) newPosted() *posted {
	h := a.hold
	p := &posted{
		keys: h.e.keys.ForCall(nil, h.key), args: a.args(make([]string, 0, 6)), queries: make([]query, len(h.e.masters)),
	}
	for i, m := range h.e.masters {
		p.queries[i] = query{a, m, h.id}
	}
	return p
}

// query is a posted request for one hold to one master. It never changes, because its answer may come late.
type query struct {
	a  *acquisition
	m  *transport.Master
	id string
}

func (q *query) Receive(r rueidis.RedisResult, sent clock.Instant) { q.a.answered(q.m, q.id, r, sent) }

// Repeats reports whether the hold is still asked for. The answer to the repeated request does not cover what the first
// one has written.
func (q *query) Repeats() bool {
	h := q.a.hold
	if !h.current(q.id) {
		return false
	}
	defer h.lease.mu.Unlock()
	asks := h.acquisition != nil
	if asks {
		q.a.sending(q.m)
		h.step(hold.Event{Kind: hold.Repeated, Master: q.m.Index})
	}
	return asks
}

// sending records that a request is about to leave, under mu. The vote counts as asked already: a release that is made
// from here on leaves a tombstone for the request.
func (a *acquisition) sending(m *transport.Master) {
	if a.sent > 0 { // the route of messages to this process may have changed
		a.describe()
	}
	a.sent++
	lock, releases := a.hold.key, a.hold.e.releases[m.Index]
	if a.behind &^= 1 << m.Index; a.entry == Try && releases.Leaving.Any(lock) {
		a.behind |= 1 << m.Index
		a.hold.lease.mu.afterUnlock(func() { releases.SendNow(lock) })
	}
	// The node timeout counts from the last request.
	if a.asked != nil {
		select {
		case a.asked <- struct{}{}:
		default:
		}
	}
}

// args appends the arguments of script to a slice of the caller, whose array is on its stack for a single master.
func (a *acquisition) args(into []string) []string {
	h := a.hold
	ttl := h.terms.args.ttl
	if h.terms.MinHold > 0 {
		ttl = h.terms.keepArg(h.life.Keep(h.now()))
	}
	if a.entry == Join {
		return wire.Join{
			Hold: h.id, Owner: h.owner(), Mode: h.mode, TTL: ttl, Details: a.detail, Token: a.claimed,
		}.Args(into)
	}
	// If several masters queued by arrival, two contenders could stand before each other on different masters, and each
	// would wait for the other to leave. All masters order hold ids alike.
	order := wire.ByHold
	if a.entry == Try {
		order = wire.NoQueue
	} else if len(h.e.masters) == 1 {
		order = wire.ByArrival
	}
	return wire.Acquire{
		Hold: h.id, TTL: ttl, Order: order, Details: a.detail, Adopts: a.adopts, Made: a.made,
	}.Args(into)
}

// script returns the script that asks for the hold. It is looked up for each request: in the meantime the master may
// have turned out to be another process, and then its scripts have other digests.
func (a *acquisition) script(m *transport.Master) *transport.Script {
	switch all := a.hold.e.scripts.of(m); {
	case a.entry == Join:
		return all.join
	case a.alone:
		return all.acquireAlone
	default:
		return all.acquire
	}
}

// answered reports the reply to the request. A grant of a former hold is not lost: its release is under way, with a
// tombstone if this answer was outstanding when the release was made.
//
// The reply is read and the server's clock is noted before the mutex is taken. A message from another server for this
// hold may be at the same point, and the second of the two finds what the first has left. The tokens of a master only
// grow, so the vote knows the later of the two in either order.
func (a *acquisition) answered(m *transport.Master, id string, r rueidis.RedisResult, sent clock.Instant) {
	h, read := a.hold, wire.ReadAcquire
	if a.entry == Join {
		read = wire.ReadJoin
	}
	reply, err := readHold(r, read)
	e := hold.Event{
		Kind: hold.Answered, Master: m.Index, Answer: voter{h, m}.answer(reply, err, sent), First: reply.First,
		After: reply.Left, Err: err,
	}
	if reply.Broken != nil {
		e.By, e.Keeps = reply.Broken, !reply.Broken.Now
	}
	if !h.current(id) {
		return
	}
	defer h.lease.mu.Unlock()
	if a.behind&(1<<m.Index) != 0 && e.Answer.Status == ballot.IsRefused && e.By == nil {
		a.askAgain(m, id)
		return
	}
	if reply.Holder != nil && reply.Holder.Hold != a.former && e.By == nil {
		a.holder = reply.Holder
		h.e.contentions.Add(h.name, 0, sent.Mono)
	}
	// A join takes the mode of the hold that it joins: a read inside the owner's own write lock counts on the write
	// hold.
	if a.entry == Join && a.hold.acquisition != nil && e.Answer.Status == ballot.IsGranted {
		h.mode = reply.Mode
	}
	h.step(e)
	if w := h.e.waiters[m.Index]; err == nil && w.outages.Some.Load() {
		w.mu.Lock()
		w.served(m.At(h.key))
		w.mu.Unlock()
	}
}

// askAgain asks a master again that may have refused the hold for the sake of one that this process was giving back,
// under mu. It does so once that master has answered the releases, as releases.Leaving says. Until then the vote stays
// asked.
func (a *acquisition) askAgain(m *transport.Master, id string) {
	h := a.hold
	ask := func() {
		if !h.current(id) {
			return
		}
		m.Post(a.call(m, true))   // also if it is held: without this master the lease may be lost with another one
		a.behind &^= 1 << m.Index // a second refusal stands
		h.lease.mu.Unlock()
	}
	h.lease.mu.afterUnlock(func() { h.e.releases[m.Index].Leaving.After(h.key, ask) })
}

// restart asks with a new hold, because nothing came of the former one, under mu. The new id has the time of the old
// one, so the new hold stands before all later contenders.
func (a *acquisition) restart(errs hold.Failures) {
	h := a.hold
	a.errs = errs // until the masters have answered for the next hold, the best explanation why there is no lease
	for i, err := range errs {
		if ahead, is := err.(*hold.CounterAhead); is {
			by := time.Duration(ahead.By)*time.Microsecond + tokens.AllowedLead
			errs[i] = &lockerr.CounterAhead{By: by.Round(time.Second)}
		}
	}
	a.former, a.holder = h.id, nil
	a.posted = nil // that of the former hold stays as it is, for its late answers
	// Messages and answers that name the former hold are not counted for the new one: the grant that they report is about
	// to be released.
	h.e.registry.forget(h.id)
	h.id = newULID(a.began)
	a.describe()
	if !h.e.registry.add(h) {
		a.giveUp(a.failure(lockerr.Closed, lockerr.ErrClosed))
		return
	}
	a.proposal = h.e.tokens.ProposalAfter(a.seen)
	h.step(hold.Event{Kind: hold.Begin})
}

var errLate = errors.New("every grant came too late or without a common token")

// await returns when asking is over for each of the acquisitions, which were asked for together: by a verdict of the
// ballot, the end of ctx, or the close of the engine.
//
// A single master has all of the caller's time. Of several, one that is silent for the node timeout is left out: two of
// three decide without the third.
func await(ctx context.Context, all ...*acquisition) {
	e := all[0].hold.e
	var timeout *time.Timer
	var late <-chan time.Time
	var asked <-chan struct{}
	for _, a := range all {
		a.hold.lease.mu.Lock()
		if a.hold.acquisition != nil { // most are over when their request returns, and need no channel
			a.ready = make(chan struct{})
		}
		ready := a.ready
		a.hold.lease.mu.Unlock()
		if ready != nil && len(e.masters) > 1 && timeout == nil {
			timeout = e.timeouts.start(e.cfg.NodeTimeout)
			defer e.timeouts.stop(timeout)
			late, asked = timeout.C, a.asked
		}
		for ready != nil {
			select {
			case <-ready:
				ready = nil
			case <-ctx.Done():
				for _, a := range all {
					a.cancel(ctx)
				}
				return
			case <-asked:
				timeout.Reset(e.cfg.NodeTimeout)
			case <-late:
				for _, a := range all {
					a.withoutLate()
				}
			}
		}
	}
}

// withoutLate draws the verdict without the masters that have not answered within the node timeout. Their later answers
// still count.
func (a *acquisition) withoutLate() {
	h := a.hold
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	h.step(hold.Event{Kind: hold.Late, Err: &transport.NoReply{After: h.e.cfg.NodeTimeout}})
}

// cancel gives the acquisition up because ctx has ended. If the grant came first, the caller gets its lease although
// its context is over.
func (a *acquisition) cancel(ctx context.Context) {
	h, cause := a.hold, errs.Cause(ctx) // not under mu: it calls the caller's code
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if a.hold.acquisition != nil {
		a.failed = a.failure(a.waitFailure(), cause)
		h.step(hold.Event{Kind: hold.GiveUp, Unsent: a.unsent})
	}
}

// abandon gives the acquisition up, or gives back the hold that it was granted: no caller gets the lease.
func (a *acquisition) abandon() {
	h := a.hold
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if a.hold.acquisition != nil {
		a.giveUp(a.failure(a.waitFailure(), nil))
	}
	h.step(hold.Event{Kind: hold.Disclaim})
	h.releaseSoon()
}

// outcome returns the result after the end of asking. The caller is woken while the goroutine that ended asking still
// holds mu, before the lease has begun. Once outcome has mu, the lease has begun. A plain return of failed would be a
// non-nil error also where failed is nil.
func (a *acquisition) outcome() error {
	a.hold.lease.mu.Lock()
	defer a.hold.lease.mu.Unlock()
	if a.failed != nil {
		return a.failed
	}
	return nil
}
