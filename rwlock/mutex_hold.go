package rwlock

import (
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
)

// remoteHold is what this process has of an RWMutex's lock on Redis: one lease, under which its goroutines follow each
// other. A write lease serves writers and readers, and has a block of tokens: a writer, or readers that are in
// together, take one each. A read lease serves readers only, with one token. All but lease, since and once is guarded
// by the RWMutex's mu.
type remoteHold struct {
	lease *Lease
	since time.Time
	once  bool // WithoutRenewal: the lease lasts for the TTL only

	grant
	served int // sections, and conversions of them
}

// grant is what a conversion of the lease replaces.
type grant struct {
	id     string        // of the hold
	next   fencing.Token // the next of the block
	last   fencing.Token
	wanted bool          // another process waits
	spare  int           // how many more sections it serves all the same
	soon   time.Duration // until then it serves some more than that; by the monotonic clock of Engine.Now
}

// granted returns what Redis has granted with a lease.
func granted(lease *Lease) grant {
	first, last := lease.inner.Block()
	return grant{id: lease.inner.Hold(), next: first, last: last}
}

const (
	// spareSections is how often the lock is handed on within a process while another process waits: often enough that
	// a round trip is shared by many, and soon over.
	spareSections = 16
	// spareTime is for sections that are shorter than a hand-off to another process takes. So many more are served until
	// it is over, or the lock would be on its way between the processes for most of the time.
	spareTime, shortSections = 200 * time.Microsecond, 7 * spareSections
	// firstBlock is how many tokens the first write lease has.
	firstBlock = 1 << 10
	// maxBlock bounds by how much the tokens of a lock run ahead of the clock at a time.
	maxBlock = 1 << 16
)

// nextBlock returns how many tokens the next write lease should have: twice as many as the last one used, so that few
// are left over, and at the most what one serves where another process waits. What lingers is to last for as long as
// nobody else wants it; a token for each microsecond of that does not run ahead of the clock.
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

// watch has the RWMutex hear of the lease's end and of those who wait for it elsewhere.
func (m *place) watch(h *remoteHold) {
	m.hearWanted(h)
	h.lease.inner.OnEnd(func(err error) { m.leaseEnded(h, h.lease.outcome(err)) })
}

// hearWanted has the RWMutex hear of those who wait for what was granted elsewhere.
func (m *place) hearWanted(h *remoteHold) {
	id := h.lease.inner.Hold()
	h.lease.inner.OnWanted(func() { m.want(h, id) })
}

// trusted reports whether the lease stands at that moment. One that was given back does not, from before its release is
// sent: Close gives a lease back whoever is in.
func (h *remoteHold) trusted(now clock.Instant) bool { return h.lease.inner.Trusted(now) }

// serves reports whether one more section of that mode may begin, under mu.
func (h *remoteHold) serves(mode Mode, now clock.Instant) bool {
	switch {
	case !h.trusted(now), h.once && h.served > 0, h.wanted && h.spent(now):
		return false
	case h.lease.Mode() == Read:
		return mode == Read
	case mode == Read:
		return h.next < h.last // one is left for a reader that upgrades
	default:
		return h.next <= h.last
	}
}

// spent reports whether one who waits elsewhere has waited long enough.
func (h *remoteHold) spent(now clock.Instant) bool {
	return h.spare <= 0 && (h.spare <= -shortSections || now.Mono >= h.soon)
}

// begin starts a section, under mu. The caller has asked serves in the same breath, so there is a token for it.
func (h *remoteHold) begin(m *place, mode Mode) *section {
	s := &section{mutex: m, remote: h}
	s.fence.set(mode, h.take())
	s.setBound(m.settings.MaxHold)
	return s
}

// take returns the token for one more section, or for what one is converted to. Tokens of a block that are not used are
// lost, and that is right: the counter is past them, so nobody else gets them, and order is all that a token promises.
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

// want notes that another process waits. Readers that are in stay; nobody joins them. A write lease serves some more
// who wait here already: to give it back at once would cost each hand-off two round trips as soon as two processes
// compete.
func (h *remoteHold) want(now clock.Instant) {
	if h.wanted {
		return
	}
	h.wanted = true
	if h.lease.Mode() == Write {
		h.spare, h.soon = spareSections, now.Mono+spareTime
	}
}

// admitsMore reports whether a reader may join those that are in, while the lease is trusted.
func (h *remoteHold) admitsMore() bool { return !h.wanted }
