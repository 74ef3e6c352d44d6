package engine

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/transport"
)

// waitSets holds the locks that this process waits for on one master. Its mutex is acquired under a lease's mutex and
// never the other way round. The waiters of one lock share a set, and so one refresh, independent of the number of
// goroutines. The load on the server therefore does not grow with the crowd.
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
	crowd        crowd
	every        time.Duration // the shortest interval that a waiter needs
	due          time.Duration // when the nearest waiters are refreshed next
	timer        timerqueue.Timer
	busy         bool // a refresh is under way
	stale        bool // a request arrived that the refresh under way may be too old for
	polls        int  // refreshes of the nearest waiters without news
	refused      bool // the server's last answer: it cannot serve now, and sends no message when it can
	refusedSince time.Duration
	kept         bool           // the server has the lease of this process that the far waiters live by
	route        string         // the route that the server has recorded for the far waiters
	silence      *ballot.Answer // the failure of the last refresh, or nil
	// While the server refuses, one waiter that is not queued asks for all of them until this time. After it, all ask.
	askAllAt time.Duration
}

// enqueue adds the acquisition to the master's wait set, under the lease's mutex. wake is the delay after which a
// refresh may give a different answer, or 0 if that is unknown. cause is why the master did not answer.
func (a *acquisition) enqueue(m *transport.Master, wake time.Duration, cause error) {
	l := a.lease
	// The first master that queues the hold makes it a waiter, for the counters and the hooks.
	if !a.waiting {
		a.waiting = true
		l.e.counters.waiting.Add(1)
		l.e.observers.tell(l.e.observers.hooks.Waiting, &l.voting)
		for i, other := range l.e.masters {
			if other != m && l.ballot.Vote(i).State == ballot.Granted { // refreshes keep the grants so far
				l.e.waiters[i].add(a, 0, false)
			}
		}
	}
	l.e.waiters[m.Index].add(a, wake, transport.Refused(cause))
	if told := uint64(1) << (m.Index % 64); a.notified&told != 0 { // the master may have granted it since
		a.notified &^= told
		l.e.waiters[m.Index].wake(l.name)
	}
	if cause != nil {
		l.e.waiters[m.Index].failed(l.name, m.At(l.key.lock()), cause)
	}
}

// add makes the acquisition one of the lock's waiters on this master, or asks about it again. It subscribes first, so
// that the subscription stands before the refresh that finds missed grants.
func (w *waitSets) add(a *acquisition, wake time.Duration, refused bool) {
	w.m.Listen(a.lease.key.lock())
	w.mu.Lock()
	defer w.mu.Unlock()
	name := a.lease.name
	s := w.byName[name]
	if s == nil {
		s = &waitSet{
			name: name, in: w, keys: w.e.keys.forCall(a.lease.key), crowd: newCrowd(), every: clock.Never,
			due: clock.Never,
		}
		w.byName[name] = s
	}
	s.crowd.add(a)
	s.every = min(s.every, a.lease.terms.refreshEvery())
	now := w.e.clock.Now().Mono
	if !refused {
		s.polls = 0
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
	s := w.byName[a.lease.name]
	if s == nil {
		return
	}
	s.crowd.remove(a)
	switch {
	case len(s.crowd.places) == 0:
		delete(w.byName, a.lease.name)
		w.e.timers.Cancel(&s.timer)
	case s.crowd.drained() && !s.busy:
		w.e.timers.SetEarlier(&s.timer, s, w.e.clock.Now().Mono)
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

// wake makes the waiters of one lock ask again. It reports whether there are any. If a refresh is under way, Fire marks
// the set stale, and the set asks once more after the answer.
func (w *waitSets) wake(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.byName[name]
	if s != nil {
		s.askAt(w.e.clock.Now().Mono)
	}
	return s != nil
}

// hear records, for a far waiter under its lease's mutex, that the last refresh was not answered. That refresh named
// only near waiters.
func (w *waitSets) hear(a *acquisition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.byName[a.lease.name]; s != nil && s.silence != nil && !s.crowd.isNear(a) {
		a.lease.ballot.Vote(w.m.Index).Refreshed(*s.silence)
	}
}

// node returns the server that answers for this lock.
func (s *waitSet) node() *transport.Node { return s.in.m.At(s.keys[0]) }

// all returns every acquisition that waits on this master.
func (w *waitSets) all() (waiting []*acquisition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.byName {
		waiting = slices.AppendSeq(waiting, maps.Keys(s.crowd.places))
	}
	return waiting
}

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

// refreshAnswered records the result of a refresh, under the mutex.
func (s *waitSet) refreshAnswered(now time.Duration, err error) {
	s.answered(now, transport.Refused(err))
	if err == nil {
		s.in.servedLocked(s.node())
	}
}

// askAt schedules a refresh of the nearest waiters at this time or earlier, under the mutex.
func (s *waitSet) askAt(at time.Duration) {
	s.due = min(s.due, at)
	s.in.e.timers.SetEarlier(&s.timer, s, s.due)
}

// If no message will arrive, because messages are not available or because the server refuses and so has no queue,
// waiters ask at an interval that begins with pollMin and doubles while nothing happens. A server that refuses during a
// failover, or while a slot moves, may serve again at any moment.
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
	if len(s.crowd.places) == 0 {
		return
	}
	pause := s.every
	if s.in.e.deafTo(s.keys[0]) {
		pause = min(pause, pollMin<<min(s.polls, 10))
	}
	if s.refused {
		pause = min(pause, pollMin<<min(s.polls, 10), refusedMost)
	}
	if wake > 0 {
		pause = min(pause, wake+time.Millisecond) // the server counts whole milliseconds
	}
	backoff, _ := s.node().Backoff(now)
	s.askAt(max(now+pause, backoff))
}

// Fire refreshes the waiters that are queued here, and asks for the waiters that are not: for the nearest waiters when
// they are due, and otherwise for the far waiters that the master does not know. The answers set the time of the next
// refresh. The time that is set here covers answers that never arrive.
func (s *waitSet) Fire(now clock.Instant) {
	w := s.in
	w.m.Listen(s.keys[0]) // the node may have changed
	w.mu.Lock()
	if until, cause := s.node().Backoff(now.Mono); cause != nil && len(s.crowd.places) > 0 {
		w.e.timers.Set(&s.timer, s, until)
		w.mu.Unlock()
		return
	}
	// One refresh of a set at a time: over a slow link several would pile up, and the refreshes of a crowd would delay
	// other locks.
	busy, one := s.busy, s.refused && now.Mono < s.askAllAt
	var waiters []*acquisition
	far := false
	switch {
	case len(s.crowd.places) == 0:
	case now.Mono >= s.due:
		waiters = s.crowd.takeNearest()
		s.stale = s.stale || busy
		s.due = clock.Never
		s.setTimer(now.Mono, 0)
		s.polls++
	default:
		s.askAt(s.due)
		far = !s.crowd.drained()
		switch {
		case busy:
		case far:
			waiters = s.crowd.takeUntold()
		default:
			waiters = s.crowd.advance()
		}
	}
	if !one {
		s.askAllAt = now.Mono + s.every
	}
	w.mu.Unlock()
	// The leases' mutexes are acquired one by one and not under this mutex, which is acquired under theirs.
	proposal := w.e.tokens.proposal()
	var queued []waiter
	asked := false
	for _, a := range waiters {
		hold, state := a.remind(w.m, proposal, one && asked)
		asked = asked || state == ballot.Asked
		if state == ballot.Queued {
			queued = append(queued, waiter{a, hold})
		}
	}
	if !busy {
		s.refresh(queued, far, proposal)
	}
}

// remind sends what a waiter needs in addition to the shared refresh. It sends no acquire if asksNot says that another
// waiter asks for all. It returns the state of the vote after that. A queued hold needs the refresh.
func (a *acquisition) remind(m *transport.Master, proposal int64, asksNot bool) (hold string, state ballot.State) {
	l := a.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != asking {
		return "", ballot.Unasked
	}
	vote := l.ballot.Vote(m.Index)
	switch vote.State {
	case ballot.Unasked, ballot.Failed:
		if !asksNot {
			a.post(m, proposal, false)
		}
	case ballot.Granted:
		// A grant without a quorum, which an older hold on the same master may wait for.
		l.perform(l.ballot.Remind(m.Index, nil))
	}
	return l.id, vote.State
}

// failWaiters ends every acquisition that waits. An acquisition without a first answer is not among them. It becomes a
// waiter later, and the next survey finds it.
func (e *Engine) failWaiters(kind Kind, cause error) {
	for _, w := range e.waiters {
		for _, a := range w.all() {
			a.lease.mu.Lock()
			if a.lease.phase == asking {
				a.giveUp(a.failure(kind, cause))
			}
			a.lease.mu.Unlock()
		}
	}
}
