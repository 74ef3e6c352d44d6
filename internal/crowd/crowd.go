// Package crowd knows for which locks many acquisitions of this process ask, and which of them may ask a master now. It
// sends nothing.
package crowd

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// Crowds keep acquisitions back in this process while many more ask for the same lock, so that the cost of a crowd for
// a server does not grow with its size: to name 100,000 waiters in refreshes would take three quarters of its time. An
// acquisition that is kept back has no place in the queue of a master. It asks in its turn, when an acquisition before
// it has got the lock or given up.
//
// The zero value is ready. Its mutex is taken under the mutex of a lease, and no other is taken under it.
type Crowds[Member any] struct {
	Asking atomic.Int64 // acquisitions that may have to wait, of all locks; above Near a new one takes a Seat
	mu     sync.Mutex   // guards what follows, and the seats
	locks  map[string]*crowd
}

// Near acquisitions of one lock ask, and the rest is kept back. Up to so many for all locks together are not counted:
// at most 200 of one lock may wait in the queue. A server serves nobody while a script runs: this bounds the delay
// that a refresh of 200 waiters causes to other locks.
const Near = 100

// crowd has the acquisitions of one lock that are counted. If any is kept back, Near ask.
type crowd struct {
	lock string
	near int
	far  list.List // of *Seat
}

// Seat is the place of an acquisition in the crowd for its lock.
type Seat[Member any] struct {
	of  Member
	in  *crowd
	far *list.Element // nil if the acquisition may ask
}

// Take counts an acquisition for a lock, and reports whether it may ask at once.
func (c *Crowds[Member]) Take(lock string, of Member) (s *Seat[Member], asks bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := c.locks[lock]
	if in == nil {
		if c.locks == nil {
			c.locks = make(map[string]*crowd)
		}
		in = &crowd{lock: lock}
		c.locks[lock] = in
	}
	s = &Seat[Member]{of: of, in: in}
	if in.near < Near {
		in.near++
		return s, true
	}
	s.far = in.far.PushBack(s)
	return s, false
}

// Leave gives a seat up, and returns the acquisition that may ask now instead, if there is one.
func (c *Crowds[Member]) Leave(s *Seat[Member]) (next Member, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in := s.in
	switch first := in.far.Front(); {
	case s.far != nil:
		in.far.Remove(s.far)
	case first != nil:
		seat := in.far.Remove(first).(*Seat[Member])
		seat.far = nil
		next, is = seat.of, true
	default:
		in.near--
	}
	if in.near == 0 {
		delete(c.locks, in.lock)
	}
	return next, is
}
