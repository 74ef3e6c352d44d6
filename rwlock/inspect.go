package rwlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/admin"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/localqueue"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/settings"
)

// Holder is one granted hold.
type Holder struct {
	Owner, Hold string        // ULIDs; equal if no owner was named
	Meta        string        // of WithMeta, as the holder set it: escape it before printing
	Mode        Mode          // Read or Write
	Count       int           // acquisitions of the owner that share it; for an RWMutex of this process, its holders
	Token       fencing.Token // of a block the last; of a broken hold the one that it had; 0 in an AcquireError
	Broken      bool          // of Inspect and List: it cannot be renewed any more, see Break
	BrokenBy    string        // who broke it, as BrokenError says; "" if the master does not know
	BrokenWhy   string        // the reason of Break: escape both before printing
	Shared      bool          // the goroutines of a process share it by an RWMutex
	Ended       bool          // released, and kept by WithMinHold until Remaining is over
	Detached    bool          // left to another process by Lease.Detach, or its process has tried to
	Lingering   bool          // of an RWMutex of this locker: kept by WithLinger, without a current holder
	Remaining   time.Duration // until the master drops it, unless it is renewed
	Held        time.Duration // since the grant
}

// Waiter is one queued acquisition.
type Waiter struct {
	Owner, Hold string // as in Holder
	Meta        string
	Mode        Mode
	Waited      time.Duration // since it was queued
}

// MasterState is the view of one master on a lock.
type MasterState struct {
	Index   int // in the order given to New or Open
	Addr    string
	Token   fencing.Token
	Holders []Holder
	Waiters []Waiter
	Err     error // why this master showed nothing
}

// State is a snapshot of one lock. Its Holders and Waiters are shown by a quorum of the masters. Its Token is the
// largest token of any master. If an RWMutex has the lock, Token is the last token that its sections may use under the
// current lease.
type State struct {
	Name    string
	Mode    Mode // 0 if the lock is free
	Token   fencing.Token
	Holders []Holder
	Waiters []Waiter // in the order in which they will be served
	Masters []MasterState
}

// Ping returns nil if every master would grant this client a lock: it answers, takes writes, runs the scripts, evicts
// no keys, and has a vote; in a Cluster each server with slots. It writes nothing, so it begins no set: of one that is
// not founded it says how long the first lock takes. Each master has the release timeout to answer, or what ctx leaves.
// The error names each server that would not, the trouble and the cure: a *QuorumError if too few masters are left for
// a quorum, else a *NodeError for each, joined. After Close it is ErrClosed. A lock may still be refused: for too few
// replicas, or a key that holds something else. Nor does Ping find a command that the server has renamed, as ZPOPMIN,
// without which hand-offs fail: fencelock doctor does.
func (l *Locker) Ping(ctx context.Context) error {
	l.mustBeMade()
	views, open := l.engine.Admin().Ping(ctx)
	if !open {
		return ErrClosed
	}
	failed := &QuorumError{Need: len(views)/2 + 1, Err: ctx.Err()}
	var nodes []error
	for _, v := range views {
		if v.Err == nil {
			failed.Got++
			continue
		}
		node := NodeError{Index: v.Index, Addr: v.Addr, Err: convertError(v.Err)}
		failed.Nodes, nodes = append(failed.Nodes, node), append(nodes, &node)
	}
	if failed.Got >= failed.Need {
		return errs.Join(nodes...)
	}
	return failed
}

// Inspect returns the holders and the waiters of a lock, for operators. It changes nothing, and the state may change
// before the caller reads it. Each master has the release timeout to answer, or what ctx leaves. If the masters that
// did not answer may make a quorum for a hold that the state has not, the error is a *QuorumError, and a state without
// a holder does not say that the lock is free. After Close the error is ErrClosed.
func (l *Locker) Inspect(ctx context.Context, name string) (State, error) {
	l.mustBeMade()
	if invalid := settings.CheckName(name); invalid != nil {
		return State{}, (*OptionError)(invalid)
	}
	views, open := l.engine.Admin().Inspect(ctx, name)
	if !open {
		return State{}, ErrClosed
	}
	return l.state(ctx, name, views)
}

// state combines the views of the masters.
func (l *Locker) state(ctx context.Context, name string, views []admin.View) (State, error) {
	s := State{Name: name}
	failed := &QuorumError{Name: name, Need: len(views)/2 + 1, Err: ctx.Err()}
	holders, waiters := newPoll[Holder](failed.Need), newPoll[Waiter](failed.Need)
	for _, v := range views {
		s.Masters = append(s.Masters, masterState(v))
		if v.Err != nil {
			failed.Nodes = append(failed.Nodes, NodeError{Index: v.Index, Addr: v.Addr, Err: convertError(v.Err)})
			continue
		}
		failed.Got++
		// The newest token of any master is no smaller than the token of any grant that a quorum has made.
		s.Token = max(s.Token, v.Token)
		for _, h := range v.Holders {
			holders.vote(h.Hold, Holder(h))
		}
		for _, w := range v.Waiters {
			waiters.vote(w.Hold, Waiter(w))
		}
	}
	s.Holders, s.Waiters = holders.elected, waiters.elected
	if m := l.mutexes.used(name); m != nil {
		m.addLocalTo(s.Holders)
	}
	if len(s.Holders) > 0 {
		s.Mode = s.Holders[0].Mode
	}
	if failed.Got < failed.Need {
		return s, failed
	}
	if votes := holders.undecided(len(failed.Nodes)); votes > 0 {
		failed.Got, failed.Err = votes, cmp.Or(failed.Err, errUndecided)
		return s, failed
	}
	return s, nil
}

var errUndecided = errors.New("those without an answer may make it a quorum for a hold that the others show")

// ListOption is an option of List.
type ListOption struct{ free bool }

// WithFreeLocks makes List return the free locks too that still have a token: a lock keeps its token for an hour after
// its last use.
func WithFreeLocks() ListOption { return ListOption{free: true} }

// List returns the locks under the locker's prefix whose names begin with namePrefix and that any master shows as held
// or waited for, each once and with its state as Inspect returns it. It is for operators: it changes nothing, and makes
// the servers look at all their keys, a few hundred in a step. A lock that is taken or released during the listing may
// be in it or not. It needs the right to SCAN, which a lock does not need.
//
// With a state, the error is that of Inspect. Without a state, it is a *NodeError for a server that does not list its
// locks, and the listing goes on with the other servers. It is within a *QuorumError as soon as held locks may be
// missing: in a Cluster and on one Redis always, of several masters if fewer than a quorum list theirs; also if keys
// have moved between servers three times. A wrong argument, the end of ctx and Close end the listing with one last
// error: an *OptionError, the cause of ctx or ErrClosed. Each request has the release timeout to be answered.
func (l *Locker) List(ctx context.Context, namePrefix string, opts ...ListOption) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		l.mustBeMade()
		if len(namePrefix) > settings.MaxName || !utf8.ValidString(namePrefix) {
			rule := fmt.Sprintf("must be valid UTF-8 of at most %d bytes", settings.MaxName)
			yield(State{}, &OptionError{"namePrefix", fmt.Sprintf("%q", namePrefix), rule})
			return
		}
		masters, silent := l.engine.Masters(), map[int]bool{}
		free := slices.Contains(opts, WithFreeLocks())
		for listed := range l.engine.Admin().List(ctx, namePrefix, free) {
			state, err := State{}, convertError(listed.Err)
			switch node, failed := err.(*NodeError); {
			case err == nil:
				state, err = l.state(ctx, listed.Name, listed.Views)
			case failed:
				silent[node.Index] = true
				if got, need := masters-len(silent), masters/2+1; got < need {
					err = &QuorumError{Need: need, Got: got, Nodes: []NodeError{*node}}
				}
			}
			if !yield(state, err) {
				return
			}
		}
	}
}

// BreakOption is an option of Break.
type BreakOption struct{ atOnce, heard bool }

// BreakNow makes Break free the lock at once, while the holder's process may still trust in its lease: until its next
// renewal it may work beside the next holder. So the work is safe only as far as the storage checks the tokens.
func BreakNow() BreakOption { return BreakOption{atOnce: true} }

// BreakOnceHeard makes Break free the lock once the holder's process has heard of it and has ended the lease, although
// work under it may still run. It is for tests, as those with package locktest.
func BreakOnceHeard() BreakOption { return BreakOption{heard: true} }

// Break takes a hold away from its process, for an operator. hold is the id that Inspect, List and AcquireError show.
// reason is for the process, 1 to 256 bytes; the text of WithMeta names the operator.
//
// A granted hold cannot be renewed any more. Its process hears of it by its next renewal at the latest: the lease ends
// with ReasonBroken and a *BrokenError. The lock is kept until that lease is released, or until the Deadline that it
// had, so that the work under it can end too. Break returns then, or when the hold has expired because its process has
// not heard of it. What a released hold leaves by WithMinHold ends at once.
// A waiter leaves the queue, and fails with an *AcquireError whose cause is a *BrokenError.
//
// If ctx ends before, the error is its cause, or a *QuorumError with that cause if no quorum has answered yet; the hold
// stays unrenewable where a request has arrived. A hold that a quorum of masters does not have is ErrNotHeld; fewer
// answers than a quorum are a *QuorumError. To repeat a Break is harmless: docs/guarantees.md says what a failover may
// lose. An argument that breaks a rule is an *OptionError, before anything is sent. After Close the error is ErrClosed.
func (l *Locker) Break(ctx context.Context, name, hold, reason string, opts ...BreakOption) error {
	l.mustBeMade()
	if invalid := settings.CheckName(name); invalid != nil {
		return (*OptionError)(invalid)
	}
	if _, err := ulid.ParseStrict(hold); err != nil {
		return &OptionError{"hold", fmt.Sprintf("%q", hold), "must be the id of a hold, as Inspect shows it"}
	}
	if reason == "" || len(reason) > settings.MaxMeta {
		rule := fmt.Sprintf("must be 1 to %d bytes", settings.MaxMeta)
		return &OptionError{"reason", fmt.Sprintf("%d bytes", len(reason)), rule}
	}
	if ctx.Err() != nil {
		return errs.Cause(ctx)
	}
	by, atOnce := lockerr.Breaker{Who: l.defaults.Meta, Why: reason}, slices.Contains(opts, BreakNow())
	by.Now = atOnce || slices.Contains(opts, BreakOnceHeard())
	err := l.engine.Admin().Break(ctx, name, hold, by, atOnce)
	if err == admin.ErrGone {
		return fmt.Errorf("%w: hold %s of lock %q", ErrNotHeld, hold, name)
	}
	return convertError(err)
}

// masterState returns one master's own view, without regard to the other masters: a search for a fault needs the
// differences.
func masterState(v admin.View) MasterState {
	m := MasterState{Index: v.Index, Addr: v.Addr, Token: v.Token, Err: convertError(v.Err)}
	for _, h := range v.Holders {
		m.Holders = append(m.Holders, Holder(h))
	}
	for _, w := range v.Waiters {
		m.Waiters = append(m.Waiters, Waiter(w))
	}
	return m
}

// addLocalTo adds to the hold of this RWMutex, if holders has it, what only its process knows. Redis has one hold for
// all goroutines of the process.
func (m *RWMutex) addLocalTo(holders []Holder) {
	m.mu.Lock()
	id, in := "", m.queue.Holders()
	if remote := m.remote.Load(); remote != nil {
		id = remote.id
	}
	m.unlock()
	for i := range holders {
		if h := &holders[i]; h.Hold == id {
			h.Count, h.Lingering = in, in == 0
		}
	}
}

// poll elects the holds that at least need masters show, in the order in which they reach that number. A hold that
// fewer masters show is being granted, yielded or released at this moment, or some masters have lost it. It does not
// block another client for long.
type poll[T any] struct {
	need    int
	votes   map[string]int
	elected []T
}

func newPoll[T any](need int) *poll[T] { return &poll[T]{need: need, votes: make(map[string]int)} }

// vote counts one more master that shows a hold. The hold is elected once, with the view of the master that completes
// the number. The times of different masters come from different clocks and cannot be combined.
func (p *poll[T]) vote(id string, v T) {
	if p.votes[id]++; p.votes[id] == p.need {
		p.elected = append(p.elected, v)
	}
}

// undecided returns the votes for a hold that this many more masters could elect, or 0 if there is none.
func (p *poll[T]) undecided(silent int) (most int) {
	for _, votes := range p.votes {
		if votes < p.need && votes+silent >= p.need {
			most = max(most, votes)
		}
	}
	return most
}

// Leases returns the leases of this process and its waiting acquisitions, in no order: also the lease of each RWMutex,
// with every goroutine that waits for it, leases that linger, and leases of package reentrant. It asks no server, and
// costs nothing while it is not called.
//
// Each state is as of the moment at which the loop reaches it. A lease that begins, ends or is converted during the
// loop may be missing, or a waiter may come once more as a lease. The body of the loop may call the Locker, take its
// time, and leave the loop early; its memory does not grow with the number of leases. After Close there are none.
func (l *Locker) Leases() iter.Seq[LeaseState] {
	return func(yield func(LeaseState) bool) {
		l.mustBeMade()
		for h := range l.engine.Holds() {
			// The granted lease of an RWMutex, which has users or lingers, comes with the RWMutex.
			granted := !h.Asking && !h.Converts
			if !(h.Shared && granted) && !yield(l.leaseState(h)) {
				return
			}
		}
		for m := range l.mutexes.each() {
			select {
			case <-l.mutexes.closed: // its waiters are about to fail
				return
			default:
			}
			if !m.eachState(yield) {
				return
			}
		}
	}
}

// leaseState converts a hold of the engine.
func (l *Locker) leaseState(h engine.HoldState) LeaseState {
	s := LeaseState{
		Name: h.Name, Mode: h.Mode, Owner: h.Owner, Hold: h.Hold, Meta: h.Meta, Token: h.Token,
		Since: time.Now().Add(-h.Age), Shared: h.Shared, Converting: h.Converts, Unreachable: h.Unreachable,
	}
	switch {
	case h.Asking || h.Converts: // a second hold that is granted waits for other readers of its process to leave
		s.Waiting, s.Token = true, 0
		if h.Holder != nil {
			behind := Holder(*h.Holder)
			s.Behind = &behind
		}
		if m := l.mutexes.used(h.Name); m != nil && h.Shared && !h.Converts {
			s.Since = m.leaderSince(s.Since)
		}
	default:
		s.Count, s.Deadline = 1, time.Now().Add(h.Left)
		s.RenewalLate, s.Err = h.RenewalLate, convertError(h.Failure)
	}
	return s
}

// Losses returns the last losses of this process, at most 64, the newest first. It asks no server. The end of a lease
// WithoutRenewal with its TTL is no loss.
func (l *Locker) Losses() (all []Loss) {
	l.mustBeMade()
	for _, lost := range slices.Backward(l.engine.Losses()) {
		err := convertError(lost.Loss).(*LostError)
		all = append(all, Loss{TraceEvent: TraceEvent(lost.Event), Meta: lost.Meta, At: lost.At, Err: err})
	}
	return all
}

// LeaseState is a lease of this process at one moment, or an acquisition that waits for one.
type LeaseState struct {
	Name     string
	Mode     Mode
	Owner    string        // a ULID; equal to Hold if the caller named no owner, as package reentrant does
	Hold     string        // a ULID; "" for a goroutine that waits for other goroutines of its process
	Meta     string        // of WithMeta: escape it before printing
	Token    fencing.Token // of an RWMutex that of its current holders, and 0 without one; 0 while it waits
	Since    time.Time     // the grant; while it waits, when the wait began
	Deadline time.Time     // until when the lease is trusted, as of Lease.Deadline; zero while it waits and after a loss

	// RenewalLate reports that less than half the TTL is left, or of a hand-off less than half of its time: at least one
	// renewal was not confirmed when it was due. The lease is still trusted.
	RenewalLate bool
	// Err is why renewals are late, as far as that is known. Of an RWMutex whose holders have lost the lock and not
	// unlocked it, Err is the *LostError. Else it is nil.
	Err error

	Count     int  // acquisitions that share the lease: the current holders of an RWMutex; 0 while it waits
	Shared    bool // of an RWMutex: goroutines of this process share it
	Lingering bool // kept by WithLinger, without a current holder

	Waiting     bool    // an acquisition that is not granted, of which a master may not have heard so far
	Converting  bool    // it waits inside an Upgrade or a Downgrade to Mode, of a lease that is listed too
	Unreachable bool    // no quorum answers this acquisition, or a quorum refuses it for 1 s
	Behind      *Holder // a holder in its way, as shown when it queued; it may have left since. nil if unknown
}

// leaderSince returns when the goroutine came that acquires the lock from Redis now: it may have waited for goroutines
// of its process before.
func (m *RWMutex) leaderSince(asked time.Time) time.Time {
	m.mu.Lock()
	defer m.unlock()
	if leader, leads := m.queue.Leader(); leads && leader.Since.Before(asked) {
		return leader.Since
	}
	return asked
}

// eachState yields the lease of an RWMutex and the goroutines that wait for it, and reports whether the loop goes on.
func (m *RWMutex) eachState(yield func(LeaseState) bool) bool {
	waiter := LeaseState{Name: m.name, Meta: m.settings.Meta, Shared: true, Waiting: true}
	m.mu.Lock()
	h, s, in, lingers := m.remote.Load(), m.current.Load(), m.queue.Holders(), m.idleHold() != nil
	converting, converts := m.queue.Converting()
	m.unlock()
	if h != nil {
		lease, stands := m.leaseState(h, s, in)
		if lease.Lingering = lingers; stands && !yield(lease) {
			return false
		}
		if in > 0 && s != nil {
			waiter.Behind = s.holder(in)
		}
		// A conversion of the lease comes with the holds of the engine.
		if converts && converting.Mode == h.lease.Mode() {
			local := waiter
			local.Mode, local.Since, local.Converting = converting.Mode, converting.Since, true
			if !yield(local) {
				return false
			}
		}
	}
	// A part of the crowd at a time, so that the mutex is never held for long.
	var at localqueue.Cursor
	for part := make([]localqueue.View, 0, 64); ; {
		if part = m.waitersBehind(&at, part); len(part) == 0 {
			return true
		}
		for _, v := range part {
			// The acquisition of the leader has come with the holds of the engine.
			if v.Leads && m.requesting.Load() {
				continue
			}
			waiter.Mode, waiter.Since = v.Mode, v.Since
			if !yield(waiter) {
				return false
			}
		}
	}
}

// leaseState returns the state of the remote hold, and whether it is of interest: it stands, or its holders have lost
// it and not unlocked it.
func (m *RWMutex) leaseState(h *remoteHold, s *section, in int) (state LeaseState, stands bool) {
	var lost error
	if in > 0 && s != nil {
		lost = s.lost()
	}
	if lost != nil {
		mode, token := s.fence.get()
		return LeaseState{
			Name: m.name, Mode: mode, Owner: h.lease.Owner(), Hold: h.lease.inner.Hold(), Meta: m.settings.Meta,
			Token: token, Since: h.since, Err: lost, Count: in, Shared: true,
		}, true
	}
	inner, stands := h.lease.inner.State()
	if !stands {
		return LeaseState{}, false
	}
	state = m.locker.leaseState(inner)
	state.Count, state.Token = in, 0
	if in > 0 && s != nil {
		state.Token = s.fence.token()
		if s.limit != nil {
			state.Deadline = s.Deadline()
		}
	}
	return state, true
}

// waitersBehind returns the next waiters of the local queue.
func (m *RWMutex) waitersBehind(at *localqueue.Cursor, into []localqueue.View) []localqueue.View {
	m.mu.Lock()
	defer m.unlock()
	return m.queue.Waiters(at, into)
}

// Loss is the end of a lease of this process that was not released.
type Loss struct {
	TraceEvent // of the end
	Meta       string
	At         time.Time
	Err        *LostError
}
