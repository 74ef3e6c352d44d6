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

// membership finds out what the masters are: that their locks have this layout and, of several, that they are distinct
// servers which decide for themselves, and one set that all clients agree on. It gives a marker to those that have
// none: all at once to a new set, which may vote immediately; to one that has lost its data beside others that have
// theirs, with a quarantine. It runs before the first acquisition, and again when a master says that its marker is not
// the one that was seen. A minority that is unfit has no vote, and the others work; only where no quorum can come about
// without it is the set refused.
type membership struct {
	e *Engine

	mu      sync.Mutex    // guards what follows
	current *survey       // under way, or the last one
	ended   time.Duration // when the last one did
	usable  bool          // one found nothing against the set, and a quorum in order
	settled bool          // the last one found every master in order
	set     string        // that the masters belong to
	seats   []string      // of the masters, as far as they were seen in order
	terms   terms         // of the set's seats
	unfit   []error       // of the masters, what keeps them from having a vote
	logged  []string      // the markers whose quarantine is in the log
	grace   time.Duration // how long a quorum is waited for

	postponed bool // a recheck waits
}

// ErrSet is a set of masters that must not be used together.
var ErrSet = errors.New("unusable set of masters")

// Abstaining is the answer of a master that has no vote yet.
type Abstaining struct {
	For time.Duration
	Err error // what keeps it from having one, nil where that passes
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

// surveyPause is how long after an incomplete or refused survey the next acquisition starts another.
const surveyPause = time.Second

// A quorum is waited for a little longer in the first survey, for which connections have to be opened.
const (
	graceFirst = 2 * time.Second
	graceMin   = 500 * time.Millisecond
)

// recheckPause is how long after a survey the next one starts at the earliest.
const recheckPause = 50 * time.Millisecond

func newMembership(e *Engine) *membership {
	return &membership{
		e: e, seats: make([]string, len(e.cfg.Clients)), unfit: make([]error, len(e.cfg.Clients)),
		logged: make([]string, len(e.cfg.Clients)),
		grace:  max(e.cfg.NodeTimeout, graceFirst),
	}
}

// visitTimes returns for how long all masters are waited for, and for how long a quorum. Neither is a matter of safety:
// a master that is missed is a stranger, and has no vote, until a later survey has read its marker.
func (m *membership) visitTimes() (late, grace time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.usable {
		return m.e.cfg.NodeTimeout, m.grace
	}
	return m.grace / 2, m.grace // a set that is founded without one of its masters has to wait for it later
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

// unfitness returns what keeps master i from having a vote, nil if nothing is known to.
func (m *membership) unfitness(i int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unfit[i]
}

// seatBefore returns the seat that master i had when it was last seen in order.
func (m *membership) seatBefore(i int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seats[i]
}

// check waits for the first survey, which every acquisition shares. While masters are missing from it, or the set was
// refused, it is taken again, for a usable set without anybody waiting. A nil error does not promise that there is a
// quorum: masters that were not seen in order do not vote.
func (m *membership) check(ctx context.Context) error {
	now := m.e.clock.Now().Mono
	m.mu.Lock()
	current := m.current
	// Whoever acquires starts the survey that is due, so an idle locker asks nobody.
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
		return nil // the acquisition itself tells what is wrong
	}
}

// recheck starts a survey unless one is under way or has just ended. Every answer of a master that refuses to vote may
// call it, so the pause bounds what a master that goes on refusing costs.
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

// recheckAfter is the recheck that could not be made at once. Others that come meanwhile are the same one.
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

// startLocked starts a survey, under mu. It goes on when the acquisition that started it has given up, since others
// wait for it too.
func (m *membership) startLocked() *survey {
	s := &survey{e: m.e, of: m, done: make(chan struct{})}
	m.current, m.settled = s, false
	if !m.e.tasks.spawn(func() { m.finish(s) }) {
		close(s.done)
	}
	return s
}

// finish takes the survey and acts on what it found. A set that is refused fails all who wait: no later answer can make
// it usable without a change of its servers. A set of which too few are in order fails nobody, since they may come
// back.
func (m *membership) finish(s *survey) {
	replies, changed, err := s.take(m.e.life)
	inOrder, moved := m.adopt(replies)
	m.mu.Lock()
	before := m.usable
	s.err, m.ended = err, m.e.clock.Now().Mono
	// Settled needs every master, usable a quorum: with one missing the locker works, and looks for it again.
	m.settled = err == nil && inOrder == len(replies)
	m.usable = err == nil && inOrder >= m.e.quorum()
	if !m.usable { // the links may be slow
		m.grace = min(2*m.grace, patience)
	}
	if m.usable {
		m.grace = max(m.e.cfg.NodeTimeout, graceMin)
	}
	// Waiters whose votes were refused by a master that is in order now need not wait for their next refresh.
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

// adopt takes over what the markers say of the masters, and returns how many are in order. The identity goes to the
// transport, which puts it into every vote from then on: with it a master sees that this client has read the marker
// that it has now, and not the one from before its last quarantine. A master that is not in order goes on as a
// stranger: it gets the calls, and refuses to vote.
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

// noteFitness notes what keeps a master from having a vote, and writes it to the log when it begins.
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

// salt gives the scripts for a master digests that only clients of this set can have loaded, and only into the very
// process that the marker tells of: the cache of scripts does not survive a process. So a request that was made for the
// process before, and goes out over a new connection, is not run by its digest; it is sent whole, and then the run id
// is compared. Those that may not read the run id have scripts of their own: what they load says nothing of a restart.
func (m *membership) salt(i int, c markerReply) {
	salt := c.set + " " + c.run
	if c.run == "" {
		salt = c.set + " without run id"
	}
	if scripts := &m.e.scripts[i]; scripts.Load().salt != salt {
		scripts.Store(newScriptSet(salt))
	}
}
