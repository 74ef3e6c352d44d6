package masterset

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
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

// mostBeginPause is the longest pause between the passes of Begin.
const mostBeginPause = 10 * passPause

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
	s.mu.Lock()
	current := s.current
	// An acquisition starts the pass that is due, so an idle locker sends no requests.
	if current == nil || !s.settled && current.over() && s.cfg.Clock.Now().Mono-s.ended >= passPause {
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
			s.cfg.Spawn(func() { s.reportVote(i, f) })
		}
		s.cfg.OnProcess(i, f.process())
		moved = m.SetIdentity(f.marker.id, f.dials) || moved
	}
	return inOrder, moved
}

// reportVote logs the end of the quarantine that was found, unless another one has begun meanwhile. No pass is due at
// that time, and operators wait for the line before they restart another master.
func (s *Set) reportVote(i int, f finding) {
	over := time.NewTimer(f.abstains)
	defer over.Stop()
	select {
	case <-over.C:
	case <-s.cfg.Life.Done():
		return
	}
	s.mu.Lock()
	same := s.logged[i] == f.marker.id && s.defects[i] == nil
	s.mu.Unlock()
	if same {
		s.cfg.Info("the quarantine of a master is over, and it votes again",
			slog.String("master", s.cfg.Masters[i].Addr()))
	}
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

// askAll sends the requests to the masters concurrently, each from its own goroutine, so that a master that hangs
// delays no other. It waits for all answers until the first limit, after that only for a quorum, and never beyond the
// second limit. Every answer counts until the first limit. After that a quorum decides, so that a dead master costs a
// locker no more than one node timeout at its start.
func (s *Set) askAll(ctx context.Context, requests []*request) []reply {
	type answer struct {
		master int
		reply  reply
	}
	answers := make(chan answer, len(requests))
	forAll, forQuorum := s.limits()
	ctx, cancel := context.WithTimeout(ctx, forQuorum)
	defer cancel()
	replies := make([]reply, len(requests))
	open := 0
	for i, r := range requests {
		replies[i].err = &transport.NoReply{After: forQuorum} // unless it answers in time
		if r == nil {
			continue
		}
		if !s.cfg.Spawn(func() { answers <- answer{i, s.askOne(ctx, i, r)} }) {
			return replies
		}
		open++
	}
	timeout := time.NewTimer(forAll)
	defer timeout.Stop()
	for late, got := false, 0; open > 0 && (!late || got < s.view.quorum()); {
		select {
		case a := <-answers:
			replies[a.master] = a.reply
			open--
			if a.reply.err == nil {
				got++
			}
		case <-timeout.C:
			late = true
		case <-ctx.Done():
			return replies
		}
	}
	return replies
}

// limits returns how long to wait for all masters, and how long for a quorum. Neither affects safety: a master that did
// not answer in time has no vote until a later bootstrap has read its marker.
func (s *Set) limits() (forAll, forQuorum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable {
		return s.cfg.NodeTimeout, s.grace
	}
	return s.grace / 2, s.grace // who answers later gets a missing marker a pass later, and so its quarantine
}

// unverified is a number of dialled connections that no client reaches. It means that the marker was read over a
// connection that is being replaced.
const unverified = ^uint64(0)

// askOne returns the answer of one master. If there are several masters, it first subscribes to the master's messages
// and prepares the connection for replicas: a connection that is opened later would invalidate the identity that the
// client has read.
func (s *Set) askOne(ctx context.Context, i int, r *request) reply {
	m, several := s.cfg.Masters[i], len(s.cfg.Masters) > 1
	if several {
		m.Listen(s.cfg.Key)
		listening := time.NewTimer(s.cfg.NodeTimeout)
		select {
		case <-m.Listened():
		case <-listening.C: // the client's pool may be exhausted by its other users
		case <-ctx.Done():
		}
		listening.Stop()
		m.Prepare(ctx)
	}
	args := r.args(s.view.rules(), Quarantine(s.cfg.LongestTTL))
	call := func() (reply, clock.Instant, uint64) {
		dials := m.Dials()
		result, sent := m.Do(ctx, 0, s.script, []string{s.cfg.Key}, wire.Vote{}, args)
		return readReply(result), sent, dials
	}
	// The marker is valid only for the connection that it was read over. If another connection was opened during the
	// call, the answer may have come over either, and so from an unknown server: mostly the call itself has opened it.
	answer, sent, dials := call()
	if answer.err == nil && m.Dials() != dials {
		answer, sent, dials = call()
	}
	// The refusal of a cluster's node is an answer too: it shows what the master is.
	if transport.FromCluster(answer.err) && m.Standalone {
		answer = reply{cluster: true}
	}
	if answer.dials = dials; m.Dials() != dials && answer.err == nil {
		answer.dials = unverified
	}
	// The first proposal of tokens is computed from this sample.
	if answer.err == nil && answer.dials == dials && several {
		m.Sample(s.cfg.Key, sent, answer.micros)
	}
	return answer
}

type purpose string

const (
	forSingle purpose = "single"  // of a master that decides alone
	look      purpose = "look"    // changes nothing except a run id that has changed
	join      purpose = "join"    // gives a marker to a master without one, or with the one that it replaces
	note      purpose = "note"    // records terms
	succeed   purpose = "succeed" // begins the next term
)

type request struct {
	purpose purpose
	set     string
	seat    int
	seats   string // the addresses of all masters, by seat
	terms   terms  // of the seats, for the master to record
	instead string // id of the set whose marker is replaced
	byWord  bool   // it abstains only for tokens: see foundByWord
	reads   bool   // the master changes nothing
}

func (r *request) args(rules string, quarantine time.Duration) []string {
	keeps := layout
	if r.reads {
		keeps = ""
	}
	if r.byWord {
		quarantine = wordQuarantine
	}
	return []string{
		string(r.purpose), keeps, rules, r.set, strconv.Itoa(r.seat), r.seats,
		strconv.FormatInt(quarantine.Milliseconds(), 10), r.terms.text(), r.instead,
	}
}

// marker is what a master stores of itself. A master without a marker has empty fields, and one that decides alone has
// a layout only.
type marker struct {
	layout, rules, set, seat, seats, run, id string
	terms                                    terms
}

type reply struct {
	marker    marker
	run, role string // of the server that answers; its run id is empty if the client may not read it
	cluster   bool
	micros    int64         // the server's time
	abstains  time.Duration // until the end of its quarantine
	dials     uint64        // of the client's connections, before the marker was read
	err       error
}

func readReply(r rueidis.RedisResult) reply {
	messages, err := r.ToArray()
	if err != nil {
		return reply{err: err}
	}
	fields := make([]string, len(messages))
	for i := range messages {
		if n, err := messages[i].ToInt64(); err == nil {
			fields[i] = strconv.FormatInt(n, 10)
		} else {
			fields[i], _ = messages[i].ToString()
		}
	}
	return newReply(fields)
}

// newReply returns the reply with these fields. A number that is malformed counts as 0.
func newReply(fields []string) reply {
	if len(fields) != 13 {
		return reply{err: fmt.Errorf("malformed reply of %d fields", len(fields))}
	}
	micros, _ := strconv.ParseInt(fields[0], 10, 64)
	until, _ := strconv.ParseInt(fields[6], 10, 64)
	left := max(until, 0)*1000 - micros // microseconds
	return reply{
		marker: marker{
			layout: fields[1], rules: fields[2], set: fields[3], seat: fields[4], seats: fields[5],
			run: fields[11], id: fields[8], terms: readTerms(fields[12]),
		},
		run: fields[7], role: fields[9], cluster: fields[10] == "1", micros: micros,
		abstains: time.Duration(max(left, 0)) * time.Microsecond,
	}
}

// layout is the version of the data that the scripts keep in a lock's keys. Clients of different layouts refuse each
// other.
const layout = "3"

// readTerms parses the field of a marker. It returns nil if the field does not have the form that marker.lua writes.
func readTerms(text string) terms {
	var all terms
	for _, part := range strings.Fields(text) {
		number, run, _ := strings.Cut(part, ":")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return nil
		}
		all = append(all, term{n, run})
	}
	return all
}

// text formats the terms as marker.lua reads them.
func (t terms) text() string {
	parts := make([]string, 0, len(t))
	for _, one := range t {
		parts = append(parts, strconv.FormatUint(one.number, 10)+":"+one.run)
	}
	return strings.Join(parts, " ")
}
