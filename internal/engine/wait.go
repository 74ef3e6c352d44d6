package engine

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
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
	outages outages // of the servers that do not answer the waiters
}

// newWaitSets returns the empty sets of a master. A set lives from its first waiter to its last.
func newWaitSets(e *Engine, m *transport.Master) *waitSets {
	return &waitSets{e: e, m: m, byName: make(map[string]*waitSet)}
}

// waitSet holds the waiters of this process for one lock on one master. It refreshes all its waiters together, with one
// call at a time, and asks early when an expiry may let a waiter enter.
type waitSet struct {
	name         string
	in           *waitSets // its mutex guards what follows
	keys         []string
	waiters      map[*acquisition]struct{}
	every        time.Duration // the shortest interval that a waiter needs
	due          time.Duration // when they are refreshed next
	timer        timerqueue.Timer
	busy         bool          // a refresh is under way
	stale        bool          // a request arrived that the refresh under way may be too old for
	quietSince   time.Duration // when a waiter was last added or granted
	refused      bool          // the server's last answer: it cannot serve now, and sends no message when it can
	refusedSince time.Duration
	// While the server refuses, one waiter probes for all until askAllAt.
	askAllAt time.Duration
}

// add makes the acquisition one of the lock's waiters on this master, or asks about it again. It subscribes first, so
// that the subscription stands before the refresh that finds missed grants.
func (w *waitSets) add(a *acquisition, wake time.Duration, refused bool) {
	w.m.Listen(a.hold.key.LockHash())
	w.mu.Lock()
	defer w.mu.Unlock()
	name := a.hold.name
	s, now := w.byName[name], w.e.clock.Now().Mono
	if s == nil {
		s = &waitSet{
			name: name, in: w, keys: w.e.keys.ForCall(a.hold.key), every: clock.Never, due: clock.Never, quietSince: now,
			waiters: make(map[*acquisition]struct{}),
		}
		w.byName[name] = s
	}
	s.waiters[a] = struct{}{}
	s.every = min(s.every, a.hold.terms.refreshEvery())
	if !refused {
		s.quietSince = now
	}
	s.answered(now, refused)
	s.setTimer(now, wake)
	// A subscription that was made while the hold was asking has missed any earlier grant, and its wake-up did not find
	// this waiter in the set.
	if n := w.e.wakeUps.Load(); n != a.wakeUps {
		a.wakeUps = n
		s.askAt(now)
	}
}

// remove removes the acquisition, and the set with its last waiter. A refresh that is on its way still names the hold.
// When its answer arrives, the acquisition is over.
func (w *waitSets) remove(a *acquisition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.byName[a.hold.name]
	if s == nil {
		return
	}
	if delete(s.waiters, a); len(s.waiters) == 0 {
		delete(w.byName, a.hold.name)
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
		s.askAllAt = 0
		s.askAt(w.e.clock.Now().Mono)
	}
}

// wake makes the waiters of one lock ask again. If a refresh is under way, Fire marks the set stale, and the set asks
// once more after the answer.
func (w *waitSets) wake(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.byName[name]; s != nil {
		s.askAt(w.e.clock.Now().Mono)
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

// answered records whether the server refuses, under the mutex. When it stops refusing, all waiters that are not queued
// ask.
func (s *waitSet) answered(now time.Duration, refused bool) {
	if s.refused && !refused {
		s.askAt(now)
	}
	if refused && !s.refused {
		s.refusedSince = now
	}
	s.refused = refused
}

// askAt schedules a refresh at this time or earlier, under the mutex.
func (s *waitSet) askAt(at time.Duration) {
	s.due = min(s.due, at)
	s.in.e.timers.SetEarlier(&s.timer, s, s.due)
}

// If no message will arrive, because messages are not available or because the server refuses and so has no queue,
// waiters ask at an interval that begins with pollMin and grows to the time since the last news, so that it doubles. A
// server that refuses during a failover, or while a slot moves, may serve again at any moment.
const (
	pollMin     = 10 * time.Millisecond
	refusedMost = 40 * time.Millisecond
)

// setTimer schedules the next refresh, under the mutex: the regular one, or an earlier one if an expiry may let a
// waiter enter before that. A master in backoff is not asked before its backoff ends.
//
// A waiter's lease covers three refreshes, so that two may be lost. Asking early is for holds that expire without a
// release. No message reports these, because no script runs at that moment.
func (s *waitSet) setTimer(now, wake time.Duration) {
	if len(s.waiters) == 0 {
		return
	}
	pause := s.every
	if s.in.e.subscriptionDown(s.keys[0]) {
		pause = min(pause, max(pollMin, now-s.quietSince))
	}
	if s.refused {
		pause = min(pause, max(pollMin, now-s.quietSince), refusedMost)
	}
	if wake > 0 {
		pause = min(pause, wake+time.Millisecond) // the server counts whole milliseconds
	}
	backoff, _ := s.node().Backoff(now)
	s.askAt(max(now+pause, backoff))
}

// subscriptionDown reports whether so many masters cannot send the hand-off messages of this lock that no quorum can.
func (e *Engine) subscriptionDown(lock string) bool {
	down := func(m *transport.Master) bool { return m.SubscriptionDown(lock) }
	return e.count(down) > len(e.masters)-e.quorum()
}

// Fire refreshes the waiters that are queued here, and asks for the waiters that are not. The answers set the time of
// the next refresh. The time that is set here covers answers that never arrive.
func (s *waitSet) Fire(now clock.Instant) {
	w := s.in
	w.m.Listen(s.keys[0]) // the node may have changed
	w.mu.Lock()
	if until, cause := s.node().Backoff(now.Mono); cause != nil && len(s.waiters) > 0 {
		w.e.timers.Set(&s.timer, s, until)
		w.mu.Unlock()
		return
	}
	// One refresh of a set at a time: over a slow link several would pile up, and the refreshes of a crowd would delay
	// other locks.
	busy, one := s.busy, s.refused && now.Mono < s.askAllAt
	waiters := s.inOrder()
	s.stale = s.stale || busy
	s.due = clock.Never
	s.setTimer(now.Mono, 0)
	if !one {
		s.askAllAt = now.Mono + s.every
	}
	w.mu.Unlock()
	// The leases' mutexes are acquired one by one and not under this mutex, which is acquired under theirs.
	proposal := w.e.tokens.proposal()
	var queued []waiter
	asked := false
	for _, a := range waiters {
		id, state := a.remind(w.m, proposal, one && asked)
		asked = asked || state == ballot.Asked
		if state == ballot.Queued {
			queued = append(queued, waiter{a, id})
		}
	}
	if !busy {
		s.refresh(queued, proposal)
	}
}

// inOrder returns the waiters, longest wait first, under the mutex: on masters that order by arrival, a queue that is
// rebuilt then has the order of the old one.
func (s *waitSet) inOrder() []*acquisition {
	return slices.SortedFunc(maps.Keys(s.waiters), func(a, b *acquisition) int {
		return cmp.Compare(a.hold.begun, b.hold.begun)
	})
}

// remind sends what a waiter needs in addition to the shared refresh. It sends no acquire if asksNot says that another
// waiter asks for all. It returns the state of the vote after that. A queued hold needs the refresh.
func (a *acquisition) remind(m *transport.Master, proposal int64, asksNot bool) (id string, state ballot.State) {
	h := a.hold
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.phase != asking {
		return "", ballot.Unasked
	}
	vote := h.ballot.Vote(m.Index)
	switch vote.State {
	case ballot.Unasked, ballot.Failed:
		if !asksNot {
			a.post(m, proposal, false)
		}
	case ballot.Granted:
		// A grant without a quorum, which an older hold on the same master may wait for.
		h.perform(h.ballot.Remind(m.Index, nil))
	}
	return h.id, vote.State
}

// waiter is one queued hold of a wait set.
type waiter struct {
	a  *acquisition
	id string
}

// refresh keeps the waiters alive on the master and learns their state. The call goes through the pipeline and is
// not urgent: while the server is in backoff it fails at once, and the timer that is set already tries again.
func (s *waitSet) refresh(batch []waiter, proposal int64) {
	w := s.in
	w.mu.Lock()
	if s.busy || len(batch) == 0 {
		w.mu.Unlock()
		return
	}
	s.busy = true
	w.mu.Unlock()
	refresh := wire.Refresh{Route: w.e.route(s.keys[0]), Holds: make([]string, len(batch))}
	for i, waiter := range batch {
		refresh.Holds[i] = waiter.id
	}
	w.m.Post(transport.Call{
		Script: w.e.scriptsOf(w.m).refresh, Keys: s.keys, Vote: w.m.Vote(proposal), Args: refresh.Args(nil),
		To: transport.ReceiverFunc(func(r rueidis.RedisResult, sent clock.Instant) { s.refreshed(batch, r, sent) }),
	})
}

// refreshed passes each waiter its part of the reply, and sets the time of the next refresh. It locks the leases one by
// one, outside the mutex of the wait sets, because a lease's mutex is acquired before that mutex.
func (s *waitSet) refreshed(batch []waiter, r rueidis.RedisResult, sent clock.Instant) {
	w := s.in
	reply, err := wire.ReadRefresh(r, len(batch))
	more, granted := reply.More == wire.MoreAdmits, false
	// Without a reply nothing is known about any waiter. Each keeps its place if a later refresh comes before its lease
	// ends.
	if err != nil {
		answer := w.e.noAnswer(w.m, err)
		for _, waiter := range batch {
			waiter.refreshed(w, answer)
		}
		w.failed(s.name, s.node(), err)
	} else {
		w.m.Sample(s.keys[0], sent, reply.Micros)
		if reply.More == wire.MoreReads {
			w.e.masterSet.Recheck()
		}
		for i, waiter := range batch {
			state := reply.Waiters[i]
			granted = granted || state.Status == wire.Granted
			state.Left = min(state.Left, waiter.a.hold.terms.TTL) // a minimum is no reason for trust
			unknown := waiter.refreshed(w, w.e.refreshAnswer(state, sent))
			more = more || unknown
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.e.clock.Now().Mono
	if granted {
		s.quietSince = now
	}
	s.refreshAnswered(now, err)
	s.busy = false
	s.setTimer(now, reply.Left)
	// A request that arrived during this refresh may be newer than its answers, so the set is refreshed once more.
	if (more || s.stale) && len(s.waiters) > 0 {
		s.askAt(now)
	}
	s.stale = false
}

// refreshAnswer converts the state of one waiter in a refresh to an answer for the ballot. Trust counts from the time
// the refresh was sent, and for the remaining time, because the grant is older than the refresh. A hold that is granted
// here was handed off, and the message was lost or is still on its way.
func (e *Engine) refreshAnswer(w wire.RefreshedWaiter, sent clock.Instant) ballot.Answer {
	switch w.Status {
	case wire.Granted:
		return ballot.Answer{Status: ballot.IsGranted, Token: w.Token, Until: e.drift.Trusted(sent, w.Left)}
	case wire.Absent:
		return ballot.Answer{Status: ballot.IsAbsent}
	default:
		return ballot.Answer{Status: ballot.IsQueued}
	}
}

// refreshed applies the refresh to this waiter. It reports whether the master must be asked anew because it does not
// know the hold: the waiter's lease ended, or the master lost its data. The hold asks again under the same id, so it
// keeps its place on masters that order by id. On a single master it goes to the end of the queue.
func (x waiter) refreshed(w *waitSets, answer ballot.Answer) (askAgain bool) {
	h := x.a.hold
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if x.id != h.id || h.phase != asking {
		return false
	}
	if answer.Status == ballot.IsGranted {
		voter{h, w.m}.granted(answer.Token, answer.Until)
	} else {
		askAgain = h.ballot.Vote(w.m.Index).Refreshed(answer)
	}
	x.a.decide()
	return askAgain
}

// refreshAnswered records the result of a refresh, under the mutex.
func (s *waitSet) refreshAnswered(now time.Duration, err error) {
	s.answered(now, transport.Refused(err))
	if err == nil {
		s.in.servedLocked(s.node())
	}
}

// doRemaining does the work that a master has left to this client.
func (e *Engine) doRemaining(m *transport.Master, key wire.LockKey, more wire.More) {
	switch more {
	case wire.MoreAdmits:
		e.continueAdmission(m, key)
	case wire.MoreReads:
		e.masterSet.Recheck()
	}
}

// continueAdmission has a master continue the work that it left undone to keep a call short. If this client dies first,
// the next refresh of any waiter does the same, so readers that could enter are late by a refresh interval and do not
// get stuck.
func (e *Engine) continueAdmission(m *transport.Master, key wire.LockKey) {
	m.Post(transport.Call{
		Script: e.scriptsOf(m).refresh, Keys: e.keys.ForCall(key), Vote: m.Vote(e.tokens.proposal()),
		Args: wire.Refresh{}.Args(nil),
		To: transport.ReceiverFunc(func(r rueidis.RedisResult, _ clock.Instant) {
			if reply, err := wire.ReadRefresh(r, 0); err == nil {
				e.doRemaining(m, key, reply.More)
			}
		}),
	})
}
