package rwlock

// cohort is the goroutines of this process that use one RWMutex: who is in it, and who waits, in the order of arrival.
// It decides about them and knows nothing of Redis; see remoteHold for that. Its methods are called under the RWMutex's
// mu, and none of them blocks.
//
// Who leaves last hands the place on to the first of the queue, under the remote hold that there is, or gives that
// back. Where there is none, the first of the queue leads: it alone may get one, in its own goroutine, for itself and,
// if it reads, for all readers behind it up to the next writer. A single attempt leads if nobody is before it.
//
// What holds between two calls, and what a reader may rely on:
//   - a writer is in alone; readers are in together; one who converts is in beside readers only while it waits;
//   - at most one leads, and it leads only while nobody is in or, to join them, while only readers are;
//   - while the last who left gives the remote hold back nobody leads and nobody enters: the next request would come
//     before the release, and wait behind its own process;
//   - where the place is free and somebody waits, somebody leads. So whoever makes it free calls wake.
type cohort struct {
	writer     bool
	readers    readers
	converting *waiter // who is in, as neither of them: see conversion
	returning  bool    // the last has left; contexts are being ended, or the remote hold is being given back
	leader     *waiter // asks Redis, or tries to join readers; the first of the queue, or a single attempt
	first      *waiter // of the queue
	last       *waiter
	queued     int // how many there are
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
	queued   stage = iota // it waits for others of this process
	leading               // it is its turn to get the place
	admitted              // it is in; others have let it in, or it has let itself in
)

func newWaiter(mode Mode) *waiter { return &waiter{mode: mode, turn: make(chan struct{}, 1)} }

// empty reports whether nobody is in.
func (c *cohort) empty() bool { return !c.writer && c.converting == nil && c.readers.number() == 0 }

// idle reports whether nobody is in or wants to be.
func (c *cohort) idle() bool {
	return c.empty() && !c.returning && c.leader == nil && c.first == nil
}

// unclaimed reports whether nobody is before one who comes now, but those that are in.
func (c *cohort) unclaimed() bool {
	return c.first == nil && c.leader == nil && c.converting == nil && !c.returning
}

// free reports whether somebody of that mode may lead. A reader may while others read: it tries to join them.
func (c *cohort) free(mode Mode) bool {
	return c.leader == nil && !c.returning && (c.empty() || mode == Read && c.besideReaders())
}

// besideReaders reports whether readers are in and more may join them, as far as the cohort knows.
func (c *cohort) besideReaders() bool { return c.readers.number() > 0 && c.converting == nil }

// enqueue puts a waiter at the end of the queue.
func (c *cohort) enqueue(w *waiter) {
	w.prev = c.last
	if c.last == nil {
		c.first = w
	} else {
		c.last.next = w
	}
	c.last = w
	c.queued++
	if c.first == w {
		c.wake()
	}
}

// tryLead makes a single attempt the leader if it need not wait for anybody in this process. It is never in the queue:
// it must not keep a place there while it asks Redis.
func (c *cohort) tryLead(w *waiter) bool {
	if c.first != nil || !c.free(w.mode) {
		return false
	}
	c.leader, w.stage = w, leading
	return true
}

// wake makes the first of the queue the leader if the place is free for it. It may be called at any time, also when
// there is a leader already; then it does nothing.
func (c *cohort) wake() {
	if w := c.first; w != nil && c.free(w.mode) {
		c.leader = w
		w.signal(leading)
	}
}

// enter lets one in that need not wait.
func (c *cohort) enter(mode Mode) {
	if mode == Write {
		c.writer = true
	} else {
		c.readers.enter()
	}
}

// admitLeader lets the leader in with the readers behind it that may enter together with it.
func (c *cohort) admitLeader(leader *waiter) {
	c.leader = nil
	c.remove(leader)
	leader.stage = admitted
	c.enter(leader.mode)
	c.admitReaders(leader.mode)
}

// admitFirst lets the first of the queue in, as admitLeader does.
func (c *cohort) admitFirst() {
	w := c.first
	c.remove(w)
	c.enter(w.mode)
	w.signal(admitted)
	c.admitReaders(w.mode)
}

// admitReaders lets in, beside a reader, the readers that wait up to the next writer. Those behind the writer wait with
// it: a stream of readers would keep it out for ever.
func (c *cohort) admitReaders(beside Mode) {
	for beside == Read && c.first != nil && c.first.mode == Read {
		w := c.first
		c.remove(w)
		c.readers.enter()
		w.signal(admitted)
	}
}

// giveUp takes out a waiter that has failed or that does not want to wait any longer, and lets the next one lead. A
// writer that gives up may have kept readers behind it from those that are in: the first of them leads then, and joins.
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
	if c.readers.number() == 0 {
		c.wake()
	}
}

// depart takes out one that is in. Where it was the last, the caller decides who is next, under the same mu: in between
// the place looks free, and another could take it. It reports whether there was one of that mode, and whether nobody is
// in any more. The last of the readers beside one who upgrades lets that one go on.
func (c *cohort) depart(mode Mode) (held, last bool) {
	if mode == Write {
		held = c.writer
		c.writer = false
		return held, held
	}
	held, last = c.readers.depart()
	if last && c.converting != nil {
		c.converting.signal(leading)
		return held, false
	}
	return held, last
}

// convert takes out one that is in, of that mode, as the one who converts; w is signalled when nobody else is in. It
// reports whether there was one, without another conversion under way, and whether it is alone.
func (c *cohort) convert(w *waiter, from Mode) (held, alone bool) {
	if c.converting != nil {
		return false, false
	}
	held, alone = c.depart(from)
	if held {
		c.converting = w
	}
	if alone {
		w.signal(leading)
	}
	return held, alone
}

// upgrading reports whether a reader is about to become the writer.
func (c *cohort) upgrading() bool { return c.converting != nil && c.converting.mode == Write }

// settle lets the one who converts in again, and those who wait and may enter beside it.
func (c *cohort) settle(mode Mode) {
	c.converting = nil
	c.enter(mode)
	c.wake()
}

// vacate makes the place free when the remote hold has been given back, whatever came of that: a release that is not
// confirmed goes on in the background, and the next leader waits for it at Redis.
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
	c.queued--
}

// signal moves a waiter on. Its goroutine may be about to give up; giveUp looks at the stage under mu, so that one of
// the two happens and not both.
func (w *waiter) signal(s stage) {
	w.stage = s
	w.turn <- struct{}{} // never blocks: the one before was received, or w would not have waited again
}
