package masterset

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/scripts"
)

// Config is what a Set is made from. Every field is set.
type Config struct {
	Masters       []*transport.Master
	Key           string        // of the marker on each master
	NodeTimeout   time.Duration // how long to wait for a master if a quorum has answered
	LongestTTL    time.Duration // of any client of these masters
	QuorumTimeout time.Duration // how long to wait for a quorum at the most
	Clock         clock.Clock

	Life  context.Context            // ends when the engine gives up on the masters
	Spawn func(task func()) bool     // runs the task in a goroutine; false at the engine's end
	NewID func() string              // returns a new id for a set
	Warn  func(string, ...slog.Attr) // logs a fault
	Info  func(string, ...slog.Attr) // logs the end of a fault

	// OnProcess is called when the marker of one of several masters was read and is in order. process names the set and
	// the process that has the master's seat; it is the same at all clients that may read as much of it.
	OnProcess func(master int, process string)
	// OnRefused is called when the set must not be used.
	OnRefused func(err error)
	// OnVotes is called when masters may vote now that refused to vote before.
	OnVotes func()
}

// Set checks the masters. Their locks must have this layout. If there are several, they must be distinct servers that
// decide for themselves, and one set that all clients agree on. Set gives markers to masters without one, at the first
// start of a set and after a loss of data alike: with a quarantine. This happens before the first acquisition, and
// again when a master reports that its marker is not the one that was read. A minority that is unfit has no vote, and
// the remaining masters work. The set is refused only if no quorum is possible without the unfit masters.
type Set struct {
	cfg    Config
	script *transport.Script

	mu        sync.Mutex    // guards what follows
	current   *pass         // under way, or the last to end
	ended     time.Duration // when the last pass ended
	usable    bool          // the last pass accepted the set and found a quorum in order
	settled   bool          // the last pass found every master in order
	view      view          // its history changes; the rest does not, and is read without mu
	defects   []error       // by master: the reason that it has no vote, or nil
	logged    []string      // by master: the id of the last marker whose quarantine was logged
	grace     time.Duration // how long a pass waits for a quorum
	postponed bool          // a recheck waits
}

// pass is a bootstrap that acquisitions wait for. Set runs at most one at a time.
type pass struct {
	done chan struct{}
	err  error // the reason that this set must not be used at all; set before done is closed
}

func (p *pass) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Quarantine returns for how long a master that may have lost leases abstains: for the longest TTL in use, and at least
// as long as tokens may run ahead of its clock.
func Quarantine(longestTTL time.Duration) time.Duration { return max(longestTTL, 2*time.Second) }

// passPause is how long after an incomplete or refused pass the next acquisition starts another one.
const passPause = time.Second

// recheckPause is the minimum time between the end of a pass and a recheck.
const recheckPause = 50 * time.Millisecond

// The first pass waits longer for a quorum, because it has to open the connections.
const (
	graceFirst = 2 * time.Second
	graceMin   = 500 * time.Millisecond
)

// New returns a set that sends nothing before Check or Recheck.
func New(cfg Config) *Set {
	n := len(cfg.Masters)
	s := &Set{
		cfg: cfg, script: transport.NewScript(scripts.Marker, ""),
		defects: make([]error, n), logged: make([]string, n), grace: max(cfg.NodeTimeout, graceFirst),
	}
	s.view = view{longestTTL: cfg.LongestTTL, history: newHistory(n)}
	for _, m := range cfg.Masters {
		s.view.masters = append(s.view.masters, m)
	}
	return s
}

// Defect returns the reason that a master has no vote, or nil if none is known.
func (s *Set) Defect(master int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.defects[master]
}

// ID returns the id of the set, "" if it is not known.
func (s *Set) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view.history.set
}

// Check waits for the first pass, which all acquisitions share. While masters are missing from the pass, or the set was
// refused, Check starts another one. If the set is usable, no caller waits for it. A nil error does not promise a
// quorum: masters that were not seen in order do not vote.
func (s *Set) Check(ctx context.Context) error {
	now := s.cfg.Clock.Now().Mono
	s.mu.Lock()
	current := s.current
	// An acquisition starts the pass that is due, so an idle locker sends no requests.
	if current == nil || !s.settled && current.over() && now-s.ended >= passPause {
		current = s.startLocked()
	}
	usable := s.usable
	s.mu.Unlock()
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

// Recheck starts a pass. If one is under way, which may have asked the master before, or has just ended, the next one
// follows after a pause. Every answer of a master that refuses to vote may call it, so the pause bounds the cost of a
// master that keeps refusing.
func (s *Set) Recheck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.current
	switch {
	case p == nil || p.over() && s.pauseLocked() <= 0:
		s.startLocked()
	case !s.postponed:
		s.postponed = s.cfg.Spawn(func() { s.recheckAfter(p) })
	}
}

// pauseLocked returns for how long a recheck has to wait, under mu.
func (s *Set) pauseLocked() time.Duration { return s.ended + recheckPause - s.cfg.Clock.Now().Mono }

// recheckAfter runs the recheck that was postponed. It serves all calls of Recheck during the pass and the pause.
func (s *Set) recheckAfter(p *pass) {
	select {
	case <-p.done:
	case <-s.cfg.Life.Done():
		return
	}
	s.mu.Lock()
	pause := s.pauseLocked()
	s.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.cfg.Life.Done():
		return
	}
	s.mu.Lock()
	s.postponed = false
	s.mu.Unlock()
	s.Recheck()
}

// startLocked starts a pass, under mu. The pass continues if the acquisition that started it gives up, because other
// acquisitions wait for it too.
func (s *Set) startLocked() *pass {
	p := &pass{done: make(chan struct{})}
	b := &bootstrap{view: s.view, ask: s.askAll, newID: s.cfg.NewID}
	b.history = s.view.clone()
	s.current, s.settled = p, false
	if !s.cfg.Spawn(func() { s.finish(p, b) }) {
		close(p.done)
	}
	return p
}

// finish runs the bootstrap and applies its result. If the set is refused, all waiters fail: no later answer can make
// the set usable unless its servers change. If too few masters of a set are in order, no waiter fails, because the
// masters may come back.
func (s *Set) finish(p *pass, b *bootstrap) {
	err := b.run(s.cfg.Life)
	inOrder, moved := s.apply(b.found)
	s.mu.Lock()
	before := s.usable
	p.err, s.ended = err, s.cfg.Clock.Now().Mono
	// settled requires every master, usable a quorum. With a master missing, the locker works and keeps looking for
	// that master.
	s.settled = err == nil && inOrder == len(b.found)
	s.usable = err == nil && inOrder >= b.quorum()
	if !s.usable { // the connections may be slow
		s.grace = min(2*s.grace, s.cfg.QuorumTimeout)
	}
	if s.usable {
		s.grace = max(s.cfg.NodeTimeout, graceMin)
	}
	// Waiters that were refused a vote by a master that is now in order need not wait for their next refresh.
	votes := b.assigned || moved || s.usable && !before
	s.mu.Unlock()
	close(p.done)
	if err != nil {
		s.cfg.OnRefused(err)
	}
	if votes {
		s.cfg.OnVotes()
	}
}

// apply takes over the findings, and returns how many masters are in order. It gives each master's identity to the
// transport, which sends it with every request for a vote. The identity proves to the master that this client has read
// its current marker, and not the marker from before its last quarantine. A master that is not in order keeps no
// identity: it gets the requests, and refuses to vote.
func (s *Set) apply(found []finding) (inOrder int, moved bool) {
	if len(found) == 1 {
		if f := found[0]; f.err == nil && f.marker.layout != "" {
			inOrder++
		}
		return inOrder, false
	}
	for i, f := range found {
		if f.state == silent {
			continue
		}
		m := s.cfg.Masters[i]
		s.noteDefect(i, f.defect)
		if !f.inOrder() {
			moved = m.Disown(f.dials) || moved
			continue
		}
		inOrder++
		s.mu.Lock()
		s.view.history.add(i, f)
		abstains := f.abstains > 0 && f.marker.id != s.logged[i]
		if abstains {
			s.logged[i] = f.marker.id
		}
		s.mu.Unlock()
		if abstains {
			s.cfg.Warn("a master is new or may have lost leases, and is in quarantine",
				slog.String("master", m.Addr()), slog.Duration("for", f.abstains))
		}
		s.cfg.OnProcess(i, f.process())
		moved = m.SetIdentity(f.marker.id, f.dials) || moved
	}
	return inOrder, moved
}

// noteDefect records the reason that a master has no vote, and logs it when it appears, changes or ends.
func (s *Set) noteDefect(i int, defect error) {
	s.mu.Lock()
	before := s.defects[i]
	s.defects[i] = defect
	s.mu.Unlock()
	master := slog.String("master", s.cfg.Masters[i].Addr())
	switch {
	case defect == nil && before != nil:
		s.cfg.Info("master is in order again", master)
	case defect != nil && (before == nil || before.Error() != defect.Error()):
		s.cfg.Warn("master has no vote", master, slog.Any("error", defect))
	}
}

// process names the set, and the process that has the master's seat. A client that may not read the run id names the
// set only.
func (f finding) process() string {
	if f.run == "" {
		return f.marker.set + " without run id"
	}
	return f.marker.set + " " + f.run
}

func newHistory(masters int) history { return history{seats: slices.Repeat([]int{-1}, masters)} }

func (h *history) clone() history {
	return history{h.set, slices.Clone(h.seats), slices.Clone(h.terms)}
}

// add takes over what was found of a master in order.
func (h *history) add(master int, f finding) {
	if f.marker.set != h.set {
		*h = newHistory(len(h.seats))
		h.set = f.marker.set
	}
	h.seats[master] = f.seat
	h.terms.learn(f.marker.terms)
}
