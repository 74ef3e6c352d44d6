package rwlock

import (
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// remoteHold is the hold that this process has on an RWMutex's lock on Redis: one lease, under which its goroutines
// follow each other. A write lease serves writers and readers and has a token block: each writer takes one token, and
// readers that hold the lock together take one for all of them. A read lease serves readers only, with one token. The
// RWMutex's mu guards all fields but lease, since and once.
type remoteHold struct {
	lease *Lease
	since time.Time
	once  bool // WithoutRenewal: the lease lasts for the TTL only

	grant
	served int // number of sections, and of their conversions
}

// grant is the part of a remoteHold that a conversion of the lease replaces.
type grant struct {
	id     string        // of the hold on Redis
	next   fencing.Token // the next token of the block
	last   fencing.Token
	wanted bool          // another process waits
	spare  int           // how many more sections it serves although another process waits
	soon   time.Duration // until then it serves shortSections more; by the monotonic clock of Engine.Now
}

// granted returns the grant of a lease.
func granted(lease *Lease) grant {
	first, last := lease.inner.Block()
	return grant{id: lease.inner.Hold(), next: first, last: last}
}

const (
	// spareSections is how many more sections a process serves while another process waits. They are enough for many
	// sections to share a round trip, and soon over.
	spareSections = 16
	// spareTime is for sections that are shorter than a hand-off to another process takes. Up to shortSections more of
	// them are served until spareTime is over. Otherwise the lock would be on its way between the processes for most of
	// the time.
	spareTime, shortSections = 200 * time.Microsecond, 7 * spareSections
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
	least, most := int64(spareSections), int64(maxBlock)
	switch {
	case h.once:
		return 1
	case h.wanted:
		most = spareSections + shortSections
	default:
		least = max(least, min(linger.Microseconds(), firstBlock))
	}
	return int(min(max(2*int64(h.served), least), most))
}

// watch registers callbacks for the end of the lease and for waiters in other processes.
func (m *place) watch(h *remoteHold) {
	m.hearWanted(h)
	h.lease.inner.OnEnd(func(err error) { m.leaseEnded(h, h.lease.outcome(err)) })
}

// hearWanted registers a callback for waiters in other processes that want the granted hold.
func (m *place) hearWanted(h *remoteHold) {
	id := h.lease.inner.Hold()
	h.lease.inner.OnContended(func() { m.want(h, id) })
}

// trusted reports whether the lease is valid at that moment. A lease stops being trusted before its release is sent:
// Close releases a lease even if it has holders.
func (h *remoteHold) trusted(now clock.Instant) bool { return h.lease.inner.Trusted(now) }

// serves reports whether one more section of that mode may begin. It is called under mu.
func (h *remoteHold) serves(mode Mode, now clock.Instant) bool {
	switch {
	case !h.trusted(now), h.once && h.served > 0, h.wanted && h.spent(now):
		return false
	case h.lease.Mode() == Read:
		return mode == Read
	case mode == Read:
		return h.next < h.last // the last token is kept for a reader that upgrades
	default:
		return h.next <= h.last
	}
}

// spent reports whether a waiter in another process has waited long enough.
func (h *remoteHold) spent(now clock.Instant) bool {
	return h.spare <= 0 && (h.spare <= -shortSections || now.Mono >= h.soon)
}

// begin starts a section, under mu. The hold is new, or the caller has checked serves under the same mu: so there is a
// token for the section.
func (h *remoteHold) begin(m *place, mode Mode) *section {
	s := &section{mutex: m, remote: h}
	s.fence.set(mode, h.take())
	s.setBound(m.settings.MaxHold)
	return s
}

// take returns the token for one more section, or for a converted section. Unused tokens of a block are lost, and that
// is safe: the counter is past them, so no other hold gets them, and a token promises nothing but order.
func (h *remoteHold) take() fencing.Token {
	token := h.next
	if h.lease.Mode() == Write {
		h.next++
	}
	h.served++
	if h.wanted {
		h.spare--
	}
	return token
}

// want records that another process waits. The current readers stay, and no reader joins them. A write lease still
// serves some goroutines that wait in this process already: to release it at once would cost two round trips for each
// hand-off as soon as two processes compete.
func (h *remoteHold) want(now clock.Instant) {
	if h.wanted {
		return
	}
	h.wanted = true
	if h.lease.Mode() == Write {
		h.spare, h.soon = spareSections, now.Mono+spareTime
	}
}

// admitsMore reports whether a reader may join the current readers, while the lease is trusted.
func (h *remoteHold) admitsMore() bool { return !h.wanted }
