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

// waitSets are the locks that this process waits for on one master. Its mutex is taken under a lease's and never the
// other way round. Waiters of one lock share a set, and so one refresh, however many goroutines they are: what a crowd
// costs the server does not grow with it.
type waitSets struct {
	e       *Engine
	m       *transport.Master
	mu      sync.Mutex
	byName  map[string]*waitSet
	outages outages // of the servers that do not answer those who wait
}

// newWaitSets returns the empty sets of a master. A set lives from its first waiter to its last.
func newWaitSets(e *Engine, m *transport.Master) *waitSets {
	return &waitSets{e: e, m: m, byName: make(map[string]*waitSet)}
}

// waitSet is where this process waits for one lock on one master. It refreshes all its waiters together, with one call
// at a time, and asks again early where an expiry may let somebody in.
type waitSet struct {
	name         string
	in           *waitSets // whose mutex guards what follows
	keys         []string
	crowd        crowd
	every        time.Duration // the shortest interval that a waiter needs
	due          time.Duration // when the nearest are asked about next
	timer        timerqueue.Timer
	busy         bool // a refresh is under way
	stale        bool // there is news that it may be too old for
	polls        int  // times that the nearest were asked about without news
	refused      bool // the server's last answer: it cannot serve now, and tells nobody when it can
	refusedSince time.Duration
	kept         bool           // the server has a lease of this process, which those behind the nearest live by
	route        string         // as the server was told of those
	silence      *ballot.Answer // to the last refresh, which failed
	// While the server refuses, one of those who are not queued asks for the others until this time; then all ask.
	askAllAt time.Duration
}

// enqueue puts the acquisition into the master's wait set, under the lease's mutex. wake is the delay after which a
// refresh may give a different answer; 0 is unknown. cause is why the master did not answer.
func (a *acquisition) enqueue(m *transport.Master, wake time.Duration, cause error) {
	l := a.lease
	// The first master that queues the hold makes it a waiter, for the counters and the hooks.
	if !a.waiting {
		a.waiting = true
		l.e.counters.waiting.Add(1)
		l.e.observers.tell(l.e.observers.hooks.Waiting, &l.voting)
		for i, other := range l.e.masters {
			if other != m && l.ballot.Vote(i).State == ballot.Granted { // the grants so far are to be kept
				l.e.waiters[i].add(a, 0, false)
			}
		}
	}
	l.e.waiters[m.Index].add(a, wake, transport.Refused(cause))
	if told := uint64(1) << (m.Index % 64); a.notified&told != 0 { // the master may have granted it meanwhile
		a.notified &^= told
		l.e.waiters[m.Index].wake(l.name)
	}
	if cause != nil {
		l.e.waiters[m.Index].failed(l.name, m.At(l.key.lock()), cause)
	}
}

// add makes the acquisition one of the lock's waiters on this master, or has it asked about again. The subscription is
// begun first, so that it stands before the refresh is due that finds what it missed.
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
	// A subscription that was made while the hold was asked for has missed a grant that came before it, and whoever
	// made it did not find this waiter yet.
	if n := w.e.wakeUps.Load(); n != a.wakeUps {
		a.wakeUps = n
		s.askAt(now)
	}
}

// remove takes the acquisition out, and the set with its last waiter. A refresh that is on its way still names the
// hold; its answer finds the acquisition over.
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

// wakeAll makes every waiter ask again: a connection was lost and with it perhaps messages, or the server changed.
func (w *waitSets) wakeAll() {
	w.e.wakeUps.Add(1) // first: who is not among them yet sees it
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.byName {
		s.askAllAt = 0
		s.askAt(w.e.clock.Now().Mono)
	}
}

// wake makes the waiters of one lock ask again. It reports whether there are any. A refresh may be under way then: the
// set is marked stale by Fire, and asks once more when that one is answered.
func (w *waitSets) wake(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.byName[name]
	if s != nil {
		s.askAt(w.e.clock.Now().Mono)
	}
	return s != nil
}

// hear counts for a waiter behind the nearest, under its lease's mutex, that the last refresh, which named others, was
// not answered.
func (w *waitSets) hear(a *acquisition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.byName[a.lease.name]; s != nil && s.silence != nil && !s.crowd.isNear(a) {
		a.lease.ballot.Vote(w.m.Index).Refreshed(*s.silence)
	}
}

// node is the server that answers for this lock.
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

// answered notes whether the server refuses, under the mutex. Once it does not, all are asked who are not queued.
func (s *waitSet) answered(now time.Duration, refused bool) {
	if s.refused && !refused {
		s.askAt(now)
	}
	if refused && !s.refused {
		s.refusedSince = now
	}
	s.refused = refused
}

// refreshAnswered notes what a refresh came to, under the mutex.
func (s *waitSet) refreshAnswered(now time.Duration, err error) {
	s.answered(now, transport.Refused(err))
	if err == nil {
		s.in.servedLocked(s.node())
	}
}

// askAt has the nearest asked about at this time, or before, under the mutex.
func (s *waitSet) askAt(at time.Duration) {
	s.due = min(s.due, at)
	s.in.e.timers.SetEarlier(&s.timer, s, s.due)
}

// Where no message will come, because none can be had or because the server refuses and so knows of nobody who waits,
// waiters ask at an interval that begins with pollMin and doubles while nothing happens. What a server refuses while
// its place is taken by another, or while a slot moves, it may do at any moment.
const (
	pollMin     = 10 * time.Millisecond
	refusedMost = 40 * time.Millisecond
)

// setTimer sets the next refresh, under the mutex: one is due, or an expiry may have let somebody in, whichever is
// sooner; but a master in backoff is not asked before its time.
//
// The refresh is three times in a waiter's lease, so that two may be lost. Asking early is for holds that expire
// without a release: no message tells of those, since nobody runs a script at that moment.
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

// Fire refreshes the waiters that are queued here and asks for those that are not: the nearest where they are due, else
// those behind them that the master has to be told of. The answers set the next time; the one set here covers answers
// that never come.
func (s *waitSet) Fire(now clock.Instant) {
	w := s.in
	w.m.Listen(s.keys[0]) // it may be another node than before
	w.mu.Lock()
	if until, cause := s.node().Backoff(now.Mono); cause != nil && len(s.crowd.places) > 0 {
		w.e.timers.Set(&s.timer, s, until)
		w.mu.Unlock()
		return
	}
	// One refresh of a set at a time: over a slow link they would pile up, and a crowd's would hold up other names.
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
	// The leases' mutexes are taken one by one and not under this one, which is taken under theirs.
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

// remind sends what a waiter needs beside the refresh that it shares with the others, but does not ask where another
// asks for all. It returns how the hold stands with the master then: one that is queued needs the refresh.
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

// failWaiters ends every acquisition that waits. One whose first answer is still to come is not among them; it becomes
// a waiter then, and the next survey finds it.
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
