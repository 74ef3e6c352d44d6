package rwlock

import (
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// remoteHold is the hold that this process has on an RWMutex's lock on Redis: one lease, under which its goroutines
// follow each other. A write lease serves writers and readers and has a token block: each writer takes one token, and
// readers that hold the lock together take one for all of them. A read lease serves readers only, with one token. The
// RWMutex's mu guards all fields but lease and since.
type remoteHold struct {
	lease  *Lease
	since  time.Time
	served int // number of sections, and of their conversions

	// A conversion of the lease sets these anew: see setGrant.
	id           string // of the hold on Redis
	mode         Mode
	next, last   fencing.Token // of the token block
	contended    bool          // another process waits
	sectionsLeft int           // how many more sections it serves although another process waits
	shortUntil   time.Duration // until then it serves shortSections more; by the monotonic clock of Engine.Now
}

// setGrant begins with the hold that the lease was granted, or was converted to.
func (h *remoteHold) setGrant() {
	h.id, h.mode = h.lease.inner.Hold(), h.lease.Mode()
	h.next, h.last = h.lease.inner.Block()
	h.contended, h.sectionsLeft, h.shortUntil = false, 0, 0
}

const (
	// contendedSections is how many more sections a process serves while another process waits. They are enough for many
	// sections to share a round trip, and soon over.
	contendedSections = 16
	// shortSectionsTime is for sections that are shorter than a hand-off to another process. Up to shortSections more of
	// them are served until shortSectionsTime is over. Otherwise the lock would be on its way between the processes for
	// most of the time.
	shortSectionsTime, shortSections = 200 * time.Microsecond, 7 * contendedSections
	// firstBlock is the number of tokens of the first write lease.
	firstBlock = 1 << 10
	// maxBlock bounds by how much the tokens of a lock run ahead of the clock at a time.
	maxBlock = 1 << 16
)

// nextBlock returns how many tokens the next write lease requests: twice as many as this lease used, so that few are
// left over, and at most what a lease serves while another process waits, if one does. A lingering lease is to last
// until another process wants the lock; a token for each microsecond of the linger time does not run ahead of the
// clock.
func (h *remoteHold) nextBlock(linger time.Duration) int {
	least, most := int64(contendedSections), int64(maxBlock)
	if h.contended {
		most = contendedSections + shortSections
	} else {
		least = max(least, min(linger.Microseconds(), firstBlock))
	}
	return int(min(max(2*int64(h.served), least), most))
}

// watchContended registers a callback for waiters in other processes that want the granted hold.
func (m *RWMutex) watchContended(h *remoteHold) {
	id := h.lease.inner.Hold()
	h.lease.inner.OnContended(func() { m.onContended(h, id) })
}

// serves reports whether one more section of that mode may begin. It is called under mu.
func (h *remoteHold) serves(mode Mode, now clock.Instant) bool {
	switch {
	case !h.lease.inner.Trusted(now), h.contended && h.exhausted(now):
		return false
	case h.mode == Read:
		return mode == Read
	case mode == Read:
		return h.next < h.last // the last token is kept for a reader that upgrades
	default:
		return h.next <= h.last
	}
}

// exhausted reports whether a waiter in another process has waited long enough.
func (h *remoteHold) exhausted(now clock.Instant) bool {
	return h.sectionsLeft <= 0 && (h.sectionsLeft <= -shortSections || now.Mono >= h.shortUntil)
}

// newSection begins a section, under mu. The hold is new, or the caller has checked serves under the same mu: so there
// is a token for the section.
func (h *remoteHold) newSection(m *RWMutex, mode Mode) *section {
	s := &section{mutex: m, remote: h}
	s.fence.set(mode, h.takeToken())
	if limit := m.settings.MaxHold; limit > 0 {
		s.limit = &holdLimit{max: limit, end: time.Now().Add(limit)}
		s.limit.mu.Lock()
		defer s.limit.mu.Unlock()
		s.limit.timer = time.AfterFunc(limit, s.onLimit)
	}
	return s
}

// takeToken returns the token for one more section, or for a converted section. Unused tokens of a block are lost, and
// that is safe: the counter is past them, so no other hold gets them, and a token promises nothing but order.
func (h *remoteHold) takeToken() fencing.Token {
	token := h.next
	if h.mode == Write {
		h.next++
	}
	h.served++
	if h.contended {
		h.sectionsLeft--
	}
	return token
}

// setContended records that another process waits. The current readers stay, and no reader joins them. A write lease
// still serves some goroutines that wait in this process already: to release it at once would cost two round trips for
// each hand-off as soon as two processes compete.
func (h *remoteHold) setContended(now clock.Instant) {
	if h.contended {
		return
	}
	h.contended = true
	if h.mode == Write {
		h.sectionsLeft, h.shortUntil = contendedSections, now.Mono+shortSectionsTime
	}
}

// onContended handles the report that another process waits for the hold with that id. The report may be old and name a
// hold that was released or converted since. Then it says nothing about the current hold and is ignored.
func (m *RWMutex) onContended(h *remoteHold, id string) {
	now := m.locker.engine.Now()
	m.mu.Lock()
	if m.remote.Load() != h || h.id != id {
		m.unlock()
		return
	}
	h.setContended(now)
	m.unlock()
	m.releaseIdle()
}

// leaseEnded handles the end of a lease, by a loss or by Close. The current holders stay until they unlock: another
// goroutine next to them would break the exclusion that does not need Redis.
func (m *RWMutex) leaseEnded(h *remoteHold, err error) {
	m.mu.Lock()
	s := m.current.Load()
	if m.remote.Load() == h {
		m.linger.stop() // an Unlock has nothing of it to keep
	}
	release := func() {}
	if m.idleHold() == h {
		release = m.detachIdle(h)
	}
	m.unlock()
	release()
	if s != nil && s.remote == h {
		s.leaseEnded(err)
	}
}

// detach removes a remote hold that is to be released from this RWMutex, under mu. No goroutine can enter under the
// hold from then on, so the release may follow at any time. The number of tokens that the hold has used determines how
// many the next one requests.
func (m *RWMutex) detach(h *remoteHold) {
	m.current.Store(nil)
	m.remote.Store(nil)
	m.linger.stop()
	m.block, m.seen = h.nextBlock(m.settings.Linger), max(m.seen, h.last)
}

// lingerTimer ends the time for which a process keeps a lock that it does not use, under WithLinger. The timer runs on
// while the lock is acquired and released: to set it again each time would cost more than the rest. The RWMutex's mu
// guards it.
type lingerTimer struct {
	until time.Duration // the lock is released then if it is not in use; by the monotonic clock of Engine.Now
	timer *time.Timer   // made with the first use
	armed bool          // the timer runs, for until or for an earlier moment
}

// stop stops the timer, because the process has nothing to keep: a running timer keeps the RWMutex from being freed.
func (l *lingerTimer) stop() {
	if l.armed {
		l.armed = false
		l.timer.Stop()
	}
}

// idleHold returns the remote hold that this process has and does not use, or nil, under mu. A waiter or a leader uses
// the hold, or is about to.
func (m *RWMutex) idleHold() *remoteHold {
	if !m.queue.IsIdle() {
		return nil
	}
	return m.remote.Load()
}

// onLingerEnd releases the lock at the end of the time, or waits on if the lock was used since. While the lock is in
// use it sets no timer: the last holder to leave does, and the lock lingers for its time.
func (m *RWMutex) onLingerEnd() {
	m.mu.Lock()
	h, left := m.idleHold(), m.linger.until-m.locker.engine.Now().Mono
	if m.linger.armed = h != nil && left > 0; m.linger.armed {
		m.linger.timer.Reset(left)
		h = nil
	}
	release := m.detachIdle(h)
	m.unlock()
	release()
}

// releaseIdle releases a lock that this process keeps and does not use. It reports whether the RWMutex is not in use:
// its time may have ended at this moment too.
func (m *RWMutex) releaseIdle() bool {
	m.mu.Lock()
	release := m.detachIdle(m.idleHold())
	unused := m.queue.IsIdle()
	m.unlock()
	release()
	return unused
}

// disclaimIfUnused is called, under mu, after each change that may leave the RWMutex unused. It then gives up the name,
// and an RWMutex with the same name and other options may be used: no goroutine uses this one, and the process has no
// hold on Redis through it.
func (m *RWMutex) disclaimIfUnused() {
	if m.queue.IsIdle() && m.remote.Load() == nil {
		m.locker.mutexes.disclaim(m)
	}
}

// detachIdle is detach for an idle hold, under mu; with nil it does nothing. The caller calls release after it has
// unlocked mu, and does not wait for Redis. The next request queues behind the hold on Redis. A single attempt, also
// through an RWMutex with other options, waits for the answer to the release. So the release is announced before that
// attempt can claim the name.
func (m *RWMutex) detachIdle(h *remoteHold) (release func()) {
	if h == nil {
		return func() {}
	}
	m.detach(h)
	release = h.lease.inner.LetGo()
	m.disclaimIfUnused()
	return release
}
