package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// membership finds out what the masters are: that their locks have this layout and, of several, that they are distinct
// servers which decide for themselves, and one set that all clients agree on. It gives a marker to those that have
// none: all at once to a new set, which may vote immediately; to one that has lost its data beside others that have
// theirs, with a quarantine. It runs before the first acquisition, and again when a master says that its marker is not
// the one that was seen.
type membership struct {
	e *Engine

	mu      sync.Mutex    // guards what follows
	current *survey       // under way, or the last one
	ended   time.Duration // when the last one did
	usable  bool          // one found nothing against the set, and a quorum in order
	settled bool          // the last one found every master in order
	seats   []string      // of the masters, as far as they were seen
	runs    []string      // the run ids that they had
	logged  []string      // the markers whose quarantine is in the log
	grace   time.Duration // how long a quorum is waited for

	postponed bool // a recheck waits
}

// ErrSet is a set of masters that must not be used together.
var ErrSet = errors.New("unusable set of masters")

// Abstaining is the answer of a master that has no vote yet.
type Abstaining struct{ For time.Duration }

func (e *Abstaining) Error() string {
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
		e: e, seats: make([]string, len(e.cfg.Clients)), runs: make([]string, len(e.cfg.Clients)),
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

// runBefore returns the run id that master i had when it was last seen in order.
func (m *membership) runBefore(i int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs[i]
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
	inOrder, moved := 0, false
	if err == nil {
		inOrder, moved = m.adopt(replies)
	}
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
// that it has now, and not the one from before its last quarantine.
func (m *membership) adopt(replies []markerReply) (inOrder int, moved bool) {
	for i, c := range replies {
		// Such a master goes on as a stranger: it gets the calls, and refuses to vote until its marker has been read.
		if c.err != nil || c.layout == "" || len(replies) > 1 && c.set == "" {
			continue
		}
		inOrder++
		m.mu.Lock()
		m.seats[i], m.runs[i] = c.seat, c.run
		abstains := c.left > 0 && c.id != m.logged[i]
		if abstains {
			m.logged[i] = c.id
		}
		m.mu.Unlock()
		if abstains {
			m.e.observers.warn("a master may have lost leases that still live, and abstains",
				slog.String("master", m.e.masters[i].Addr()), slog.Duration("for", c.left))
		}
		if len(replies) > 1 {
			moved = m.e.masters[i].SetIdentity(c.id, c.dials) || moved
		}
	}
	for _, c := range replies {
		if c.set != "" {
			m.salt(c)
			break
		}
	}
	return inOrder, moved
}

// salt gives the scripts digests that only clients of this set can have loaded. Those that may not read the run id have
// others than those that may: what the former load says nothing of a restart.
func (m *membership) salt(c markerReply) {
	salt := c.set
	if c.run == "" {
		salt += " without run id"
	}
	if old := m.e.scripts.Load(); old.salt != salt {
		m.e.scripts.Store(newScriptSet(salt))
	}
}
