package rwlock

// cohort is the goroutines of this process that use one RWMutex: who is in it, and who waits, in the order of arrival.
// It decides about them and knows nothing of Redis; see remoteHold for that. Its methods are called under the RWMutex's
// mu, and none of them blocks.
//
// The place is free, then one waiter leads: it is the first of the queue (or a single attempt that found none), and it
// alone may get the place, in its own goroutine. What it gets is for itself and, if it reads, for all readers behind it
// up to the next writer. The last to leave gives the remote hold back, and the place is free when that is done.
type cohort struct {
	writer    bool
	readers   int
	returning bool // the last has left; the remote hold is being given back
	leader    *waiter
	first     *waiter
	last      *waiter
}

// waiter is one call of Lock or RLock that may have to wait.
type waiter struct {
	mode       Mode
	stage      stage
	turn       chan struct{} // holds one signal when another goroutine has changed the stage
	prev, next *waiter
}

// stage is where a waiter is. It is read without the mutex by the waiter itself, after a signal.
type stage uint8

const (
	queued stage = iota
	leading
	admitted
)

func newWaiter(mode Mode) *waiter { return &waiter{mode: mode, turn: make(chan struct{}, 1)} }

// idle reports whether nobody is in or wants to be.
func (c *cohort) idle() bool {
	return !c.writer && c.readers == 0 && !c.returning && c.leader == nil && c.first == nil
}

// mayJoin reports whether a reader may enter beside those that are in, past no one.
func (c *cohort) mayJoin() bool { return c.readers > 0 && c.first == nil && c.leader == nil }

// free reports whether somebody of that mode may lead. A reader may while others read: it tries to join them.
func (c *cohort) free(mode Mode) bool {
	return c.leader == nil && !c.returning && !c.writer && (c.readers == 0 || mode == Read)
}

// enqueue puts a waiter at the end of the queue.
func (c *cohort) enqueue(w *waiter) {
	w.prev = c.last
	if c.last == nil {
		c.first = w
	} else {
		c.last.next = w
	}
	c.last = w
	if c.first == w {
		c.wake()
	}
}

// tryLead makes a single attempt the leader if it need not wait for anybody in this process.
func (c *cohort) tryLead(w *waiter) bool {
	if c.first != nil || !c.free(w.mode) {
		return false
	}
	c.leader, w.stage = w, leading
	return true
}

// wake makes the first of the queue the leader if the place is free for it.
func (c *cohort) wake() {
	if w := c.first; w != nil && c.free(w.mode) {
		c.leader = w
		w.signal(leading)
	}
}

// admit lets the leader in with the readers behind it that may enter together with it.
func (c *cohort) admit(leader *waiter) {
	c.leader = nil
	c.remove(leader)
	leader.stage = admitted
	if leader.mode == Write {
		c.writer = true
		return
	}
	for c.readers++; c.first != nil && c.first.mode == Read; c.readers++ {
		w := c.first
		c.remove(w)
		w.signal(admitted)
	}
}

// giveUp takes out a waiter that has failed or that does not want to wait any longer, and lets the next one lead.
func (c *cohort) giveUp(w *waiter) {
	c.remove(w)
	if c.leader == w {
		c.leader = nil
	}
	c.wake()
}

// stepBack makes a leader that could not join the readers wait until they have left.
func (c *cohort) stepBack(leader *waiter) {
	c.leader, leader.stage = nil, queued
	if c.readers == 0 {
		c.wake()
	}
}

// depart takes out one that is in. It reports whether there was one of that mode, and whether it was the last: then the
// remote hold is to be given back and vacate to be called.
func (c *cohort) depart(mode Mode) (held, last bool) {
	switch {
	case mode == Write && c.writer:
		c.writer = false
	case mode == Read && c.readers > 0:
		if c.readers--; c.readers > 0 {
			return true, false
		}
	default:
		return false, false
	}
	c.returning = true
	return true, true
}

// vacate makes the place free when the remote hold has been given back.
func (c *cohort) vacate() {
	c.returning = false
	c.wake()
}

// remove takes a waiter out of the queue, if it is in it.
func (c *cohort) remove(w *waiter) {
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case c.first == w:
		c.first = w.next
	default:
		return
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		c.last = w.prev
	}
	w.prev, w.next = nil, nil
}

func (w *waiter) signal(s stage) {
	w.stage = s
	w.turn <- struct{}{} // never blocks: the one before was received, or w would not have waited again
}
