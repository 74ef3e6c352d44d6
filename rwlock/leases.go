package rwlock

import (
	"iter"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/localqueue"
)

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

// Leases returns the leases of this process and its waiting acquisitions, in no order: also the lease of each RWMutex,
// with every goroutine that waits for it, leases that linger, and leases of package reentrant. It asks no server, and
// costs nothing while it is not called.
//
// Each state is as of the moment at which the loop reaches it. A lease that begins, ends or is converted during the
// loop may be missing, or a waiter may come once more as a lease. No mutex is held while the body of the loop runs: it
// may call the Locker, take its time, and leave the loop early. The memory that the loop needs does not grow with the
// number of leases and waiters. After Close there are none.
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
			if l.mutexes.isClosed() { // its waiters are about to fail
				return
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
