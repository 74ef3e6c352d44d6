package engine

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/outage"
	"github.com/seed74116694/fencelock/internal/schedule"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// waitSets holds the locks that this process waits for on one master.
//
// A waiter is a short lease in the master's queue. A script that makes room grants the lock to the head of the queue
// and publishes one message to its process. If the message has no receiver, the lock passes on at once. If the message
// is lost, the next refresh reports the grant. It also reports the waiters that the server has lost and the time of the
// next expiry.
//
// Its mutex is acquired under a lease's mutex and never the other way round. The waiters of one lock share a set, and
// so one refresh, independent of the number of goroutines. The load on the server therefore does not grow with the
// crowd.
type waitSets struct {
	e       *Engine
	m       *transport.Master
	mu      sync.Mutex
	byName  map[string]*waitSet
	outages outage.Set // of the servers that do not answer the waiters
}

// waitSet holds the waiters of this process for one lock on one master. The schedule says when it asks for them all.
type waitSet struct {
	name     string
	in       *waitSets // its mutex guards what follows
	keys     []string
	waiters  map[*acquisition]struct{}
	schedule schedule.Refreshes
	timer    timerqueue.Timer
}

// enqueue adds the acquisition to a master's wait set, under the lease's mutex, with what the master has answered to
// its request.
func (a *acquisition) enqueue(f *hold.Effect) {
	h, w := a.hold, a.hold.e.waiters[f.Master]
	answer := schedule.Outcome{Served: f.Served, Wake: f.At, Refused: transport.Refused(f.Err)}
	if f.N > 0 {
		answer.Wake = transport.Backoff(f.N)
	}
	a.waits()
	a.queued = true
	w.add(a, answer)
	if f.Err != nil {
		w.failed(h.name, w.m.At(h.key), schedule.Own, f.Err)
	}
}

// waits makes the hold a waiter once, for the counters and the hooks.
func (a *acquisition) waits() {
	if h := a.hold; !a.waiting {
		a.waiting, h.contended = true, true
		h.e.counters.waiting.Add(1)
		h.e.contentions.Add(h.name, +1, h.e.clock.Now().Mono)
		h.e.observers.offer(OnWaiting, h, nil, 0)
	}
}

// leave is the only way out of asking, under mu. It removes the acquisition from every wait set, which stops its
// refreshes.
func (a *acquisition) leave() {
	if a.ready != nil {
		close(a.ready)
	}
	a.hold.acquisition = nil
	e := a.hold.e
	if a.waiting {
		e.counters.waiting.Add(-1)
		e.contentions.Add(a.hold.name, -1, e.clock.Now().Mono)
	}
	if a.queued {
		for _, w := range e.waiters {
			w.remove(a)
		}
	}
	if a.entry == Wait {
		e.crowds.Asking.Add(-1)
	}
	if a.seat != nil {
		if next, is := e.crowds.Leave(a.seat); is {
			a.hold.lease.mu.afterUnlock(next.askAll)
		}
	}
}

// add makes the acquisition one of the lock's waiters on this master, or asks about it again, after an answer to its
// own request. It subscribes first, so that the subscription stands before the refresh that finds missed grants.
func (w *waitSets) add(a *acquisition, answer schedule.Outcome) {
	w.m.Listen(a.hold.key)
	w.mu.Lock()
	defer w.mu.Unlock()
	name := a.hold.name
	s, now := w.byName[name], w.e.clock.Now().Mono
	if s == nil {
		s = &waitSet{
			name: name, in: w, keys: w.e.keys.ForCall(nil, a.hold.key), schedule: schedule.Begin(now),
			waiters: make(map[*acquisition]struct{}),
		}
		w.byName[name] = s
	}
	s.waiters[a] = struct{}{}
	// A subscription that was made while the hold was asking has missed any earlier grant, and its wake-up did not find
	// this waiter in the set.
	if n := w.e.wakeUps.Load(); n != a.wakeUps {
		a.wakeUps, answer.Again = n, true
	}
	s.schedule.Add(now, a.hold.terms.HandOff/refreshes, w.e.masters.subscriptionDown(s.keys[0]), answer)
	s.setTimer()
}

// refreshes fit into a waiter's lease: with 3, two may be lost.
const refreshes = 3

// remove removes the acquisition, and the set with its last waiter. A refresh on its way may still name the hold: its
// answer finds the acquisition over.
func (w *waitSets) remove(a *acquisition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.byName[a.hold.name]
	if s == nil {
		return
	}
	if delete(s.waiters, a); len(s.waiters) == 0 {
		delete(w.byName, a.hold.name)
		s.schedule.End()
		w.e.timers.Cancel(&s.timer)
	}
}

// wakeAll makes every waiter ask again, because a connection was lost and perhaps messages with it, or because the
// server changed.
func (w *waitSets) wakeAll() {
	w.e.wakeUps.Add(1) // first, so that an acquisition that is not in a set at this point notices it
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.byName {
		s.schedule.WakeRefused(w.e.clock.Now().Mono)
		s.setTimer()
	}
}

// wake makes the waiters of one lock ask again.
func (w *waitSets) wake(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.byName[name]; s != nil {
		s.schedule.Wake(w.e.clock.Now().Mono)
		s.setTimer()
	}
}

// all returns every acquisition that waits on this master.
func (w *waitSets) all() (waiting []*acquisition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.byName {
		waiting = slices.AppendSeq(waiting, maps.Keys(s.waiters))
	}
	return waiting
}

// node returns the server that answers for this lock.
func (s *waitSet) node() *transport.Node { return s.in.m.At(s.keys[0]) }

// setTimer sets the timer as the schedule says, under the mutex.
func (s *waitSet) setTimer() {
	if at := s.schedule.At(); at != clock.Never {
		s.in.e.timers.Set(&s.timer, s, at)
	}
}

// Fire refreshes the waiters that are queued here, and asks for the waiters that are not.
func (s *waitSet) Fire(now clock.Instant) {
	w := s.in
	w.m.Listen(s.keys[0]) // the node may have changed
	w.mu.Lock()
	backoff, _ := s.node().Backoff(now.Mono)
	whom := s.schedule.Ask(now.Mono, backoff, w.e.masters.subscriptionDown(s.keys[0]))
	s.setTimer()
	// The longest wait first: on masters that order by arrival, a queue that is rebuilt then has the order of the old one.
	waiters := slices.SortedFunc(maps.Keys(s.waiters), func(a, b *acquisition) int {
		return cmp.Compare(a.hold.begun, b.hold.begun)
	})
	w.mu.Unlock()
	if whom == schedule.Nobody {
		return
	}
	// The leases' mutexes are acquired one by one and not under this mutex, which is acquired under theirs.
	proposal := w.e.tokens.Proposal()
	var queued []waiter
	asked := false
	for _, a := range waiters {
		x := waiter{a: a}
		asks, isQueued := x.remind(w.m, proposal, whom == schedule.One && asked)
		asked = asked || asks
		if isQueued {
			queued = append(queued, x)
		}
	}
	w.mu.Lock()
	s.schedule.Asks(asked, len(queued) > 0)
	w.mu.Unlock()
	if len(queued) > 0 {
		s.refresh(queued, proposal)
	}
}

// waiter is one queued hold of a wait set.
type waiter struct {
	a  *acquisition
	id string
}

// remind sends what a waiter needs in addition to the shared refresh. It sends no acquire if asksNot says that another
// waiter asks for all. It reports whether a request of its own is under way, and whether it is queued and needs the
// refresh.
func (x *waiter) remind(m *transport.Master, proposal int64, asksNot bool) (asks, queued bool) {
	h := x.a.hold
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.acquisition == nil {
		return false, false
	}
	x.a.proposal = proposal
	var few [fewEffects]hold.Effect
	now := h.now()
	sent := h.life.Step(now, hold.Event{Kind: hold.Remind, Master: m.Index, Quiet: asksNot}, few[:0])
	h.apply(now, sent)
	x.id = h.id
	state := h.life.Votes()[m.Index].State
	return len(sent) > 0 || state == ballot.Asked, state == ballot.Queued
}

// refresh keeps the waiters alive on the master and learns their state. The call goes through the pipeline and is
// not urgent: while the server is in backoff it fails at once, and the timer that is set already tries again.
func (s *waitSet) refresh(batch []waiter, proposal int64) {
	w := s.in
	refresh := wire.Refresh{Route: w.e.masters.route(s.keys[0]), Holds: make([]string, len(batch))}
	for i, waiter := range batch {
		refresh.Holds[i] = waiter.id
	}
	w.m.Post(transport.Call{
		Script: w.e.scripts.of(w.m).refresh, Keys: s.keys, Vote: w.m.Vote(proposal), Args: refresh.Args(nil),
		To: transport.ReceiverFunc(func(r rueidis.RedisResult, sent clock.Instant) { s.answered(batch, r, sent) }),
	})
}

// answered passes each waiter its part of the reply, and sets the time of the next refresh. It locks the leases one by
// one, outside the mutex of the wait sets, because a lease's mutex is acquired before that mutex.
func (s *waitSet) answered(batch []waiter, r rueidis.RedisResult, sent clock.Instant) {
	w := s.in
	reply, err := wire.ReadRefresh(r, len(batch))
	next := schedule.Outcome{
		Served: err == nil, Refused: transport.Refused(err), Again: reply.More == wire.MoreAdmits, Wake: reply.Left,
	}
	var answer ballot.Answer
	if err != nil {
		// Nothing is known about any waiter. Each keeps its place if a later refresh comes before its lease ends.
		answer = w.e.noAnswer(w.m, err)
	} else {
		w.m.Sample(s.keys[0], sent, reply.Micros)
	}
	if reply.More == wire.MoreReads {
		w.e.masterSet.Recheck()
	}
	for i, waiter := range batch {
		if err == nil {
			answer = waiter.answer(reply.Waiters[i], sent)
		}
		next.Granted = next.Granted || answer.Status == ballot.IsGranted
		next.Again = waiter.answered(w, answer) || next.Again
	}
	if err != nil {
		w.failed(s.name, s.node(), schedule.Refresh, err) // without the waiters that the error has ended
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.schedule.Answered(w.e.clock.Now().Mono, w.e.masters.subscriptionDown(s.keys[0]), next)
	s.setTimer()
	if err == nil {
		w.served(s.node())
	}
}

// answer converts the state of this waiter in a refresh to an answer for the ballot. Trust counts from the time the
// refresh was sent, and for the remaining time, because the grant is older than the refresh. A hold that is granted
// here was handed off, and the message was lost or is still on its way.
func (x waiter) answer(state wire.RefreshedWaiter, sent clock.Instant) ballot.Answer {
	switch h := x.a.hold; state.Status {
	case wire.Granted:
		left := min(state.Left, h.terms.TTL) // a minimum is no reason for trust
		return ballot.Answer{Status: ballot.IsGranted, Token: state.Token, Until: h.e.drift.Trusted(sent, left)}
	case wire.Absent:
		return ballot.Answer{Status: ballot.IsAbsent}
	default:
		return ballot.Answer{Status: ballot.IsQueued}
	}
}

// answered applies the refresh to this waiter. It reports whether the master must be asked anew because it does not
// know the hold: the waiter's lease ended, or the master lost its data. The hold asks again under the same id, so it
// keeps its place on masters that order by id. On a single master it goes to the end of the queue.
func (x waiter) answered(w *waitSets, answer ballot.Answer) (askAgain bool) {
	h := x.a.hold
	if !h.current(x.id) {
		return false
	}
	defer h.lease.mu.Unlock()
	var few [fewEffects]hold.Effect
	now := h.now()
	all := h.life.Step(now, hold.Event{Kind: hold.Refreshed, Master: w.m.Index, Answer: answer}, few[:0])
	h.apply(now, all)
	return slices.ContainsFunc(all, func(f hold.Effect) bool { return f.Kind == hold.AskAgain })
}

// goOn does the work that the master has left to this client, such as the rest of an admission, which it left undone to
// keep a call short. If this client dies first, the next refresh of any waiter does the same, so readers that could
// enter are late by a refresh interval and do not get stuck.
func (w *waitSets) goOn(key string, more wire.More) {
	if more == wire.MoreReads {
		w.e.masterSet.Recheck()
	}
	if more != wire.MoreAdmits {
		return
	}
	w.m.Post(transport.Call{
		Script: w.e.scripts.of(w.m).refresh, Keys: w.e.keys.ForCall(nil, key), Vote: w.m.Vote(w.e.tokens.Proposal()),
		Args: wire.Refresh{}.Args(nil),
		To: transport.ReceiverFunc(func(r rueidis.RedisResult, _ clock.Instant) {
			if reply, err := wire.ReadRefresh(r, 0); err == nil {
				w.goOn(key, reply.More)
			}
		}),
	})
}

// refusalLasts is how long a server refuses a lock before the refusal counts as an outage. During a failover or the
// migration of a slot a server refuses for a moment.
const refusalLasts = time.Second

// failed records that the server did not answer a request of this kind for this lock, or refused one again.
func (w *waitSets) failed(name string, n *transport.Node, k schedule.Kind, cause error) {
	if refused := w.refused(name, w.e.clock.Now().Mono, k); n.Failing() || refused >= refusalLasts {
		w.report(n, cause, refused)
	}
}

// refused returns for how long the server has refused requests of this kind for the lock, 0 where it does not.
func (w *waitSets) refused(name string, now time.Duration, k schedule.Kind) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.byName[name]; s != nil {
		return s.schedule.RefusedFor(now, k)
	}
	return 0
}

// served records, under w.mu, that the server has served one of its locks. Its outage continues while it refuses
// another lock.
func (w *waitSets) served(n *transport.Node) {
	if !w.outages.Has(n) { // the answers of the other servers of a Cluster do not search the sets
		return
	}
	for _, s := range w.byName {
		if s.schedule.Refused() && s.node() == n {
			return
		}
	}
	if after, ended := w.outages.Over(n, w.e.clock.Now().Mono); ended {
		w.e.observers.info("a server answers its waiters again",
			slog.String("master", n.Addr()), slog.Duration("after", after))
	}
}

// report logs an outage if a report is due. A thousand waiters may call it for the same outage, at every refresh, and
// only one of them reports.
func (w *waitSets) report(n *transport.Node, cause error, lasted time.Duration) {
	due, line := w.outages.Due(n, w.e.clock.Now().Mono, lasted, &w.e.observers.log)
	if !due {
		return
	}
	message := "a server does not answer its waiters"
	if transport.Refused(cause) {
		message = "a server refuses its waiters"
	}
	if unsent, ok := errors.AsType[*transport.NotSent](cause); ok {
		cause = unsent.Cause
	}
	if line {
		w.e.observers.warnOfServer(message, n, cause)
	}
	if hook := w.e.observers.hooks.Of[OnUnreachable]; hook != nil {
		w.e.tasks.spawn(func() { w.reportUnreachable(n, hook, cause) }) // the caller may hold a lease's mutex
	}
}

// reportUnreachable calls the hook for each waiter for a lock of this server that has no quorum without the server. The
// remaining waiters continue with the masters that answer, and the hook is not called for them.
func (w *waitSets) reportUnreachable(n *transport.Node, hook Hook, cause error) {
	for _, a := range w.all() {
		if w.m.At(a.hold.key) != n {
			continue
		}
		a.hold.lease.mu.Lock()
		cutOff, ctx, event := a.cutOff(), a.hold.extra.ctx, a.hold.event()
		a.hold.lease.mu.Unlock()
		if cutOff {
			w.e.observers.relay.Offer(func() { hook(ctx, event, cause, 0) })
		}
	}
}

// report counts and reports the failure, which is the end of the acquisition, under mu or before the hold is
// registered. The caller of a provisional hold goes on, and so does the caller of a join that was for no hold in
// particular.
func (a *acquisition) report(failure error) {
	f, _ := failure.(*lockerr.Error)
	if a.hold.provisional || f != nil && f.Kind == lockerr.Absent && a.claimed == 0 {
		return
	}
	a.hold.e.counters.failed(failure)
	a.hold.e.observers.offer(OnFailed, a.hold, failure, 0)
}

// giveUp ends asking with a failure, under mu.
func (a *acquisition) giveUp(f *lockerr.Error) {
	a.failed = f
	a.hold.step(hold.Event{Kind: hold.GiveUp})
}

// fail is called when asking is over without a hold: it was given up, or the votes have failed.
func (a *acquisition) fail(f *hold.Effect) {
	h := a.hold
	switch {
	case a.failed != nil:
	case f.Verdict == ballot.TooLate:
		a.failed = a.failure(lockerr.NoQuorum, errLate)
	default:
		a.failed = a.failure(lockerr.Kind(f.Verdict), f.Err)
	}
	a.leave()
	a.report(a.failed)
	h.done().fire(a.failed, &h.lease.mu)
}

// waitFailure returns the kind of the failure when ctx ends, under mu: Contended if other clients have the lock, and
// NoQuorum if the lock could not be asked for, by the votes at this moment. If too many masters refused the former
// hold, as they do where their clocks disagree, the current hold may wait for nothing but the release of the former
// one. Then another client has the lock only if a master has named its hold.
func (a *acquisition) waitFailure() lockerr.Kind {
	if a.seat != nil && a.sent == 0 { // others of this process, which ask for it, are before it
		if a.cutOff() {
			return lockerr.NoQuorum
		}
		return lockerr.Contended
	}
	refused := 0
	for _, err := range a.errs {
		if err != nil {
			refused++
		}
	}
	if e := a.hold.e; a.holder == nil && refused > len(e.masters)-e.masters.quorum() {
		return lockerr.NoQuorum
	}
	return lockerr.Kind(a.hold.life.Votes().WaitFailure())
}

// cutOff reports, under mu, whether the servers of so many masters fail, or refuse what this acquisition asks, that no
// quorum can serve it.
func (a *acquisition) cutOff() bool {
	h, now := a.hold, a.hold.e.clock.Now().Mono
	return h.e.masters.lost(func(m *transport.Master) bool {
		kind := schedule.Own
		if h.life.Votes()[m.Index].State == ballot.Queued {
			kind = schedule.Refresh
		}
		return m.At(h.key).Failing() || h.e.waiters[m.Index].refused(h.name, now, kind) >= refusalLasts
	})
}

// failure describes why no lease came about, under mu. It names the masters that gave a cause, and at the end of ctx
// those that were silent. If Unknown, a request may still run, and its release goes on in the background.
func (a *acquisition) failure(kind lockerr.Kind, cause error) *lockerr.Error {
	h := a.hold
	waited := h.e.clock.Now().Mono - h.begun
	f := &lockerr.Error{
		Op: lockerr.OpAcquire, Kind: kind, Name: h.name, Mode: h.mode, Attempts: a.sent, Waited: waited, Holder: a.holder,
		Err:     cause,
		Claimed: a.claimed, Need: h.life.Votes().Quorum(),
		Own: cause != nil && a.holder != nil && h.e.registry.lookup(a.holder.Hold) != nil,
	}
	for i, m := range h.e.masters {
		v := &h.life.Votes()[i]
		failed := func(err error) {
			f.Nodes = append(f.Nodes, lockerr.OfMaster(m, h.key, err))
		}
		f.Unknown = f.Unknown || v.Unanswered()
		// The master's error for the former hold is used if it has not answered for this one, has granted this one too
		// with another token than the other masters, or may only have it wait for the former one.
		disagrees := kind == lockerr.NoQuorum && (v.State == ballot.Granted || v.State == ballot.Queued)
		why := v.Err
		if why == nil && (v.State == ballot.Unasked || v.State == ballot.Asked || disagrees) && a.errs != nil {
			why = a.errs[i]
		}
		switch {
		case why != nil:
			failed(why)
		case cause != nil && v.State == ballot.Asked:
			failed(&transport.NoReply{After: waited})
		}
	}
	f.Got = h.life.Votes().Answers()
	if kind == lockerr.NoQuorum { // too many of the answers are grants that came too late, or with another token
		f.Got = min(f.Got, f.Need-1)
	}
	return f
}
