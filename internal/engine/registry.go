package engine

import (
	"slices"
	"sync"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// registry holds the leases of an engine by hold. Messages and Close find a lease through it, so a lease is added
// before its first request is sent, and removed when nothing may change it any more.
type registry struct {
	mu     sync.Mutex // guards what follows; acquired under a lease's mutex, never the other way round
	closed bool
	leases map[string]*Lease
}

// add registers the lease under its hold. It reports false after close.
func (r *registry) add(l *Lease) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.leases[l.id] = l
	}
	return !r.closed
}

// forget removes the hold. Messages for it are ignored from then on.
func (r *registry) forget(hold string) {
	r.mu.Lock()
	delete(r.leases, hold)
	r.mu.Unlock()
}

// lookup returns nil for a hold that has ended, or that belongs to another process.
func (r *registry) lookup(hold string) *Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leases[hold]
}

// snapshot returns a copy, because the mutex of a lease is never acquired under the registry's mutex. A lease in the
// copy may end before the caller reaches it, so each use checks the phase.
func (r *registry) snapshot() []*Lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Lease, 0, len(r.leases))
	for _, l := range r.leases {
		all = append(all, l)
	}
	return all
}

// countOn returns the number of trusted leases that have their locks on this server.
func (r *registry) countOn(server *transport.Node, now clock.Instant) (n int) {
	for _, l := range r.snapshot() {
		on := func(m *transport.Master) bool { return m.At(l.key.lock()) == server }
		if !l.trust.until().Passed(now) && slices.ContainsFunc(l.e.masters, on) {
			n++
		}
	}
	return n
}

// close stops the registry from accepting leases. It reports whether it is the first call. A restart of an acquisition
// is refused too, and fails with ErrClosed.
func (r *registry) close() (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first = !r.closed
	r.closed = true
	return first
}

func (r *registry) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}
