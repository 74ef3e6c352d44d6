package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// membership checks the masters. Their locks must have this layout. If there are several, they must be distinct servers
// that decide for themselves, and one set that all clients agree on. It gives markers to masters without one: a new set
// gets all its markers at once and may vote immediately, and a master that has lost its data while other masters of its
// set have theirs gets a marker with a quarantine. It runs before the first acquisition, and again when a master
// reports that its marker is not the one that was read. A minority that is unfit has no vote, and the remaining masters
// work. The set is refused only if no quorum is possible without the unfit masters.
type membership struct {
	e *Engine

	mu      sync.Mutex    // guards what follows
	current *survey       // under way, or the last to end
	ended   time.Duration // when the last survey ended
	usable  bool          // the last survey accepted the set and found a quorum in order
	settled bool          // the last survey found every master in order
	set     string        // id of the set that the masters belong to
	seats   []string      // by master: its seat when it was last seen in order, or ""
	terms   terms         // of the set's seats
	unfit   []error       // by master: the reason that it has no vote, or nil
	logged  []string      // by master: the id of the last marker whose quarantine was logged
	grace   time.Duration // how long a survey waits for a quorum

	postponed bool // a recheck waits
}

// ErrSet is a set of masters that must not be used together.
var ErrSet = errors.New("unusable set of masters")

// Abstaining is the answer of a master that has no vote at present.
type Abstaining struct {
	For time.Duration
	Err error // the reason that it has none; nil if that passes by itself
}

func (e *Abstaining) Unwrap() error { return e.Err }

func (e *Abstaining) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("has no vote: it %v", e.Err)
	}
	if e.For == 0 {
		return "abstains: its marker is missing or has changed, and is being looked at"
	}
	return fmt.Sprintf("abstains for another %v: it may have lost leases that still live", e.For)
}

// surveyPause is how long after an incomplete or refused survey the next acquisition starts another survey.
const surveyPause = time.Second

// The first survey waits longer for a quorum, because it has to open the connections.
const (
	graceFirst = 2 * time.Second
	graceMin   = 500 * time.Millisecond
)

// recheckPause is the minimum time between the end of a survey and a recheck.
const recheckPause = 50 * time.Millisecond

func newMembership(e *Engine) *membership {
	return &membership{
		e: e, seats: make([]string, len(e.cfg.Clients)), unfit: make([]error, len(e.cfg.Clients)),
		logged: make([]string, len(e.cfg.Clients)),
		grace:  max(e.cfg.NodeTimeout, graceFirst),
	}
}

// visitTimes returns how long a survey waits for all masters, and how long for a quorum. Neither affects safety: a
// master that did not answer in time has no vote until a later survey has read its marker.
func (m *membership) visitTimes() (late, grace time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.usable {
		return m.e.cfg.NodeTimeout, m.grace
	}
	return m.grace / 2, m.grace // a set that is founded without one of its masters begins with a quarantine
}

// termsOf returns the last terms of a set's seats that this client has seen.
func (m *membership) termsOf(set string) terms {
	m.mu.Lock()
	defer m.mu.Unlock()
	if set != m.set {
		return nil
	}
	return slices.Clone(m.terms)
}

// unfitness returns the reason that master i has no vote, or nil if none is known.
func (m *membership) unfitness(i int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unfit[i]
}

// seatBefore returns the seat of master i when it was last seen in order, or "".
func (m *membership) seatBefore(i int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seats[i]
}

// check waits for the first survey, which all acquisitions share. While masters are missing from the survey, or the set
// was refused, check starts another one. If the set is usable, no caller waits for it. A nil error does not promise a
// quorum: masters that were not seen in order do not vote.
func (m *membership) check(ctx context.Context) error {
	now := m.e.clock.Now().Mono
	m.mu.Lock()
	current := m.current
	// An acquisition starts the survey that is due, so an idle locker sends no requests.
	if current == nil || !m.settled && current.over() && now-m.ended >= surveyPause {
		current = m.startLocked()
	}
	usable := m.usable
	m.mu.Unlock()
	if usable {
		return nil
	}
	select {
	case <-current.done:
		return current.err
	case <-ctx.Done():
		return nil // the acquisition itself reports what is wrong
	}
}

// recheck starts a survey unless one is under way or has just ended. Every answer of a master that refuses to vote may
// call it, so the pause bounds the cost of a master that keeps refusing.
func (m *membership) recheck() {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, since := m.current, m.e.clock.Now().Mono-m.ended
	switch {
	case s != nil && !s.over():
	case s == nil || since >= recheckPause:
		m.startLocked()
	case !m.postponed:
		m.postponed = m.e.tasks.spawn(func() { m.recheckAfter(recheckPause - since) })
	}
}

// recheckAfter runs the recheck that was postponed. It serves all calls of recheck during the pause.
func (m *membership) recheckAfter(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-m.e.life.Done():
		return
	}
	m.mu.Lock()
	m.postponed = false
	m.mu.Unlock()
	m.recheck()
}

// startLocked starts a survey, under mu. The survey continues if the acquisition that started it gives up, because
// other acquisitions wait for it too.
func (m *membership) startLocked() *survey {
	s := &survey{e: m.e, of: m, done: make(chan struct{})}
	m.current, m.settled = s, false
	if !m.e.tasks.spawn(func() { m.finish(s) }) {
		close(s.done)
	}
	return s
}

// finish runs the survey and applies its result. If the set is refused, all waiters fail: no later answer can make the
// set usable unless its servers change. If too few masters of a set are in order, no waiter fails, because the masters
// may come back.
func (m *membership) finish(s *survey) {
	replies, changed, err := s.take(m.e.life)
	inOrder, moved := m.adopt(replies)
	m.mu.Lock()
	before := m.usable
	s.err, m.ended = err, m.e.clock.Now().Mono
	// settled requires every master, usable a quorum. With a master missing, the locker works and keeps looking for
	// that master.
	m.settled = err == nil && inOrder == len(replies)
	m.usable = err == nil && inOrder >= m.e.quorum()
	if !m.usable { // the connections may be slow
		m.grace = min(2*m.grace, patience)
	}
	if m.usable {
		m.grace = max(m.e.cfg.NodeTimeout, graceMin)
	}
	// Waiters that were refused a vote by a master that is now in order need not wait for their next refresh.
	news := changed || moved || m.usable && !before
	m.mu.Unlock()
	close(s.done)
	if err != nil {
		m.e.failWaiters(InvalidMasters, err)
	}
	if news {
		for _, w := range m.e.waiters {
			w.wakeAll()
		}
	}
}

// adopt applies the markers, and returns how many masters are in order. It gives each master's identity to the
// transport, which sends it with every request for a vote. The identity proves to the master that this client has read
// its current marker, and not the marker from before its last quarantine. A master that is not in order keeps no
// identity: it gets the requests, and refuses to vote.
func (m *membership) adopt(replies []markerReply) (inOrder int, moved bool) {
	for i, c := range replies {
		if c.err != nil || len(replies) == 1 {
			if c.err == nil && c.layout != "" {
				inOrder++
			}
			continue
		}
		master := m.e.masters[i]
		m.noteFitness(i, c.unfit)
		if !c.inOrder() {
			moved = master.Disown(c.dials) || moved
			continue
		}
		inOrder++
		m.mu.Lock()
		if c.set != m.set {
			m.set, m.terms = c.set, nil
			clear(m.seats)
		}
		m.seats[i] = c.seat
		m.terms.learn(c.terms)
		abstains := c.left > 0 && c.id != m.logged[i]
		if abstains {
			m.logged[i] = c.id
		}
		m.mu.Unlock()
		if abstains {
			m.e.observers.warn("a master may have lost leases that still live, and abstains",
				slog.String("master", master.Addr()), slog.Duration("for", c.left))
		}
		m.salt(i, c)
		moved = master.SetIdentity(c.id, c.dials) || moved
	}
	return inOrder, moved
}

// noteFitness records the reason that a master has no vote, and logs it when it appears or changes.
func (m *membership) noteFitness(i int, unfit error) {
	m.mu.Lock()
	before := m.unfit[i]
	m.unfit[i] = unfit
	m.mu.Unlock()
	if unfit != nil && (before == nil || before.Error() != unfit.Error()) {
		m.e.observers.warn("a master is not in order, and has no vote",
			slog.String("master", m.e.masters[i].Addr()), slog.Any("error", unfit))
	}
}

// salt gives a master's scripts digests that only clients of this set can have loaded, and only into the process that
// the marker names, because the script cache does not survive the process. A request that was made for an earlier
// process and leaves over a new connection therefore does not run by its digest. It is sent again in full, and then the
// master compares the run id. Clients that may not read the run id have scripts of their own, because the scripts that
// they load prove nothing about a restart.
func (m *membership) salt(i int, c markerReply) {
	salt := c.set + " " + c.run
	if c.run == "" {
		salt = c.set + " without run id"
	}
	if scripts := &m.e.scripts[i]; scripts.Load().salt != salt {
		scripts.Store(newScriptSet(salt))
	}
}
