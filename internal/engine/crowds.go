package engine

import (
	"container/list"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// contentions knows the locks for which acquisitions of this process wait, or had to wait lately. A request for such a
// lock travels alone: a group would leave it, and it would arrive a round trip later, behind those of other processes
// that have asked meanwhile. Its mutex is acquired under a lease's mutex, and no other under it.
type contentions struct {
	any   atomic.Bool // whether there are any
	mu    sync.Mutex
	locks map[string]contention
	most  int // locks to have before those of the past are forgotten
}

type contention struct {
	waiting int           // acquisitions
	until   time.Duration // when the lock counts as free again, once none waits
}

// contendedFor is for how long a lock counts as contended after the last wait for it.
const contendedFor = 10 * time.Second

// contendedLeast locks are kept before those of the past are looked for.
const contendedLeast = 64

// add counts acquisitions that begin to wait, or with -1 one that waits no more. With 0 it notes a refusal.
func (c *contentions) add(lock string, waiting int, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.locks) >= max(c.most, contendedLeast) {
		maps.DeleteFunc(c.locks, func(_ string, one contention) bool { return !one.stands(now) })
		c.most = 2 * len(c.locks)
	}
	if c.locks == nil {
		c.locks = make(map[string]contention)
	}
	c.locks[lock] = contention{c.locks[lock].waiting + waiting, now + contendedFor}
	c.any.Store(true)
}

func (c contention) stands(now time.Duration) bool { return c.waiting > 0 || now < c.until }

// lately reports whether the lock is contended, if any is.
func (c *contentions) lately(lock string, now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, is := c.locks[lock]
	if is && !one.stands(now) {
		delete(c.locks, lock)
		c.any.Store(len(c.locks) > 0)
	}
	return is && one.stands(now)
}

// crowds keep acquisitions back in this process while many others of it ask for the same lock, so that what a crowd
// costs a server does not grow with its size: to name 100,000 waiters in refreshes would take three quarters of its
// time. Those that are kept back have no place in the queue of a master. In their order, each asks when one before it
// has got the lock or given up.
type crowds struct {
	asking atomic.Int64 // acquisitions with the entry Wait, of all locks
	mu     sync.Mutex   // guards what follows; acquired under a lease's mutex, and no other under it
	locks  map[string]*crowd
}

// nearMost acquisitions of one lock ask; others are kept back. Up to so many for all locks together are not counted, so
// that 200 of one lock may wait in the queue at most. A server serves nobody while a script runs: this bounds the delay
// that a refresh of 200 waiters causes to other locks.
const nearMost = 100

// crowd has the acquisitions of one lock that are counted. If it keeps any back, nearMost others ask.
type crowd struct {
	near int
	far  list.List // of *acquisition
}

// seat is the place of an acquisition in the crowd for its lock.
type seat struct {
	in  *crowd
	far *list.Element // nil if the acquisition may ask
}

// keepBack counts an acquisition for its lock, and reports whether it has to wait for its turn.
func (c *crowds) keepBack(a *acquisition) bool {
	h := a.hold
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if a.hold.asking == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.locks[h.name]
	if in == nil {
		if c.locks == nil {
			c.locks = make(map[string]*crowd)
		}
		in = new(crowd)
		c.locks[h.name] = in
	}
	a.seat = &seat{in: in}
	if in.near < nearMost {
		in.near++
		return false
	}
	a.asked = make(chan struct{}, 1)
	a.seat.far = in.far.PushBack(a)
	a.waits()
	return true
}

// leave removes an acquisition, and returns the one whose turn it is now, or nil.
func (c *crowds) leave(a *acquisition) (next *acquisition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := a.seat.in
	switch first := in.far.Front(); {
	case a.seat.far != nil:
		in.far.Remove(a.seat.far)
	case first != nil:
		next = in.far.Remove(first).(*acquisition)
		next.seat.far = nil
	default:
		in.near--
	}
	if in.near == 0 {
		delete(c.locks, a.hold.name)
	}
	return next
}
