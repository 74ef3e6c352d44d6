package engine

import (
	"time"

	"github.com/seed74116694/fencelock/internal/transport"
)

// Outages are those of an engine.
type Outages struct{ outages }

// Tell reports whether a failure of the server is to be told.
func (o *Outages) Tell(n *transport.Node, now time.Duration) bool {
	_, due := o.due(n, now, 0)
	return due
}

// Len is how many servers are known to fail.
func (o *Outages) Len() int { return len(o.of) }

// Leaving has the releases of an engine on one master that no caller waits for.
type Leaving struct{ leaving }

// Add registers a release of the lock.
func (l *Leaving) Add(lock string) (left func()) { return l.add(lock) }

// After calls f after the releases of the lock that are registered now.
func (l *Leaving) After(lock string, f func()) { l.after(lock, f) }

// Any reports whether a release of the lock has no answer so far.
func (l *Leaving) Any(lock string) bool { return l.any(lock) }

// Registered is what an engine keeps a note of.
type Registered struct{ Leases, Releases, WaitSets, Timers int }

// Registered counts the notes.
func (e *Engine) Registered() Registered {
	r := Registered{Releases: int(e.unconfirmed.n.Load()), Timers: e.timers.Len()}
	r.Leases = len(e.registry.snapshot())
	for _, w := range e.waiters {
		w.mu.Lock()
		r.WaitSets += len(w.byName)
		w.mu.Unlock()
	}
	return r
}

// Held counts the leases that are held. It takes no mutex, so a clock may call it.
func (e *Engine) Held() int { return int(e.counters.held.Load()) }

// AddBesideRepeat adds a release for the lock on the first master, by a goroutine that found the queue of its node just
// before other servers answered and the queue was replaced. It reports whether that queue waited for a probe.
func (e *Engine) AddBesideRepeat(name, hold string, ttl time.Duration) (waited bool) {
	p, key := e.releases[0], e.keys.Of(name)
	q := p.queue(key.LockHash())
	waited = q.failures > 0 && q.underWay == 0
	p.repeat()
	r := &release{of: p, key: key, hold: hold, until: e.clock.Now().Add(ttl)}
	r.announce()
	q.add(r)
	return waited
}

// Crowd is the waiters for one lock on a master, by number.
type Crowd struct {
	crowd
	waiters map[*acquisition]int
}

// NewCrowd returns a crowd of n waiters in their order.
func NewCrowd(n int) *Crowd {
	c := &Crowd{newCrowd(), make(map[*acquisition]int)}
	for i := range n {
		a := new(acquisition)
		c.waiters[a] = i
		c.add(a)
	}
	return c
}

// Remove removes the waiter.
func (c *Crowd) Remove(number int) {
	for a, n := range c.waiters {
		if n == number {
			c.remove(a)
		}
	}
}

// ReportAll has all far waiters reported.
func (c *Crowd) ReportAll() { c.reportAll() }

// Advance moves far waiters into free places.
func (c *Crowd) Advance() { c.advance() }

// TakeUnreported takes the waiters to report next.
func (c *Crowd) TakeUnreported() (numbers []int) {
	for _, a := range c.takeUnreported() {
		numbers = append(numbers, c.waiters[a])
	}
	return numbers
}
