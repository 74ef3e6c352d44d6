package rwlock

import "sync/atomic"

// cohort has the goroutines of this process that use one RWMutex: its holders, and its local queue in the order of
// arrival. It decides which goroutine is next and knows nothing of Redis; see remoteHold for that. Its methods are
// called under the RWMutex's mu, and none of them blocks.
//
// The last holder to leave passes the place to the first waiter of the queue under the existing remote hold, or
// releases that hold. Without a remote hold, the first waiter of the queue leads. Only the leader may acquire a hold.
// It does so in its own goroutine, for itself and, if it reads, for all readers behind it up to the next writer. A
// single attempt leads if no goroutine is ahead of it.
//
// Invariants between two calls:
//   - A writer is the only holder. Readers hold the lock together. A converting goroutine has readers next to it only
//     while it waits.
//   - At most one waiter leads. It leads only while there is no holder or, to join them, while all holders are readers.
//   - While the last holder releases the remote hold, no waiter leads and no goroutine enters. Otherwise the next
//     request would arrive before the release and wait behind its own process.
//   - If the place is free and a goroutine waits, a waiter leads. So a caller that frees the place calls wake.
type cohort struct {
	writer     bool
	readers    readers
	converting *waiter // a holder that is neither writer nor reader: see conversion
	returning  bool    // the last holder has left: contexts are being ended, or the remote hold is being released
	leader     *waiter // asks Redis, or tries to join readers; the first of the queue, or a single attempt
	first      *waiter // first of the queue
	last       *waiter
	queued     int // length of the queue
}

// waiter is one call of Lock or RLock that may have to wait.
type waiter struct {
	mode       Mode
	stage      stage
	turn       chan struct{} // has one signal after another goroutine has changed the stage
	prev, next *waiter
}

// stage is the progress of a waiter. The waiter itself reads it without the mutex, after a signal.
type stage uint8

const (
	queued   stage = iota // it waits for other goroutines of this process
	leading               // it has the turn to get the place
	admitted              // it is a holder: another goroutine has admitted it, or it has admitted itself
)

func newWaiter(mode Mode) *waiter { return &waiter{mode: mode, turn: make(chan struct{}, 1)} }

// empty reports whether there is no holder.
func (c *cohort) empty() bool { return !c.writer && c.converting == nil && c.readers.number() == 0 }

// idle reports whether no goroutine holds the RWMutex, waits for it or releases it.
func (c *cohort) idle() bool {
	return c.empty() && !c.returning && c.leader == nil && c.first == nil
}

// unclaimed reports whether a goroutine that comes now has at most the current holders ahead of it.
func (c *cohort) unclaimed() bool {
	return c.first == nil && c.leader == nil && c.converting == nil && !c.returning
}

// free reports whether a waiter of that mode may lead. A reader may lead while other readers hold the lock: it tries to
// join them.
func (c *cohort) free(mode Mode) bool {
	return c.leader == nil && !c.returning && (c.empty() || mode == Read && c.besideReaders())
}

// besideReaders reports whether there are readers and more may join them, as far as the cohort knows.
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

// tryLead makes a single attempt the leader if it need not wait for another goroutine of this process. A single attempt
// is never in the queue: it must not keep a place there while it asks Redis.
func (c *cohort) tryLead(w *waiter) bool {
	if c.first != nil || !c.free(w.mode) {
		return false
	}
	c.leader, w.stage = w, leading
	return true
}

// wake makes the first of the queue the leader if the place is free for it. It may be called at any time. If there is a
// leader already, it does nothing.
func (c *cohort) wake() {
	if w := c.first; w != nil && c.free(w.mode) {
		c.leader = w
		w.signal(leading)
	}
}

// enter adds a holder that need not wait.
func (c *cohort) enter(mode Mode) {
	if mode == Write {
		c.writer = true
	} else {
		c.readers.enter()
	}
}

// admitLeader makes the leader a holder, with the readers behind it that may enter together with it.
func (c *cohort) admitLeader(leader *waiter) {
	c.leader = nil
	c.remove(leader)
	leader.stage = admitted
	c.enter(leader.mode)
	c.admitReaders(leader.mode)
}

// admitFirst makes the first of the queue a holder, as admitLeader does for the leader.
func (c *cohort) admitFirst() {
	w := c.first
	c.remove(w)
	c.enter(w.mode)
	w.signal(admitted)
	c.admitReaders(w.mode)
}

// admitReaders admits, if the new holder reads, the waiting readers up to the next writer. Readers behind that writer
// wait with it: otherwise a stream of readers would keep the writer out for ever.
func (c *cohort) admitReaders(beside Mode) {
	for beside == Read && c.first != nil && c.first.mode == Read {
		w := c.first
		c.remove(w)
		c.readers.enter()
		w.signal(admitted)
	}
}

// giveUp removes a waiter that has failed or stops waiting, and lets the next one lead. A writer that gives up may have
// kept the readers behind it from joining the current readers. The first of them then leads and joins.
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

// depart removes a holder of that mode. It reports whether there was one, and whether no holder is left. After the last
// one, the caller decides under the same mu which goroutine is next: until then the place looks free, and another
// goroutine could take it. If a reader is upgrading, the last of the other readers signals the upgrade to go on.
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

// convert removes a holder of mode from and makes it the converting one. w is signalled when there is no other holder.
// convert reports whether there was such a holder, without another conversion under way, and whether it is alone.
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

// settle makes the converting goroutine a holder again, in the given mode, and wakes the first of the queue if it may
// join.
func (c *cohort) settle(mode Mode) {
	c.converting = nil
	c.enter(mode)
	c.wake()
}

// vacate frees the place after the release of the remote hold, also if the release is not confirmed: it then goes on in
// the background, and the next leader waits for it at Redis.
func (c *cohort) vacate() {
	c.returning = false
	c.wake()
}

// remove takes a waiter out of the queue if it is there.
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

// signal moves a waiter to its next stage. The waiter's goroutine may be about to give up. giveUp checks the stage
// under mu, so that exactly one of the two happens.
func (w *waiter) signal(s stage) {
	w.stage = s
	w.turn <- struct{}{} // never blocks: w received the previous signal before it waited again
}

// readers counts the readers that hold the lock together, and says whether more may join them. Joining other readers,
// and leaving while other readers stay, needs no mutex, so that readers do not wait for each other. The first reader
// enters and the last one leaves under the RWMutex's mu, and readers opens and closes under mu.
//
// Each change is one transition from the current state. It is tried again if the state has changed concurrently, and
// refused only because of the state.
type readers struct{ state atomic.Int64 } // twice their number, plus 1 if no reader may join

const (
	reader = 2
	closed = 1
)

// transition returns the state after a change, and whether the change is possible.
type transition func(state int64) (next int64, possible bool)

// change makes a transition if it is possible, and returns the state after it.
func (r *readers) change(to transition) (next int64, changed bool) {
	for {
		state := r.state.Load()
		next, possible := to(state)
		if !possible {
			return state, false
		}
		if state == next || r.state.CompareAndSwap(state, next) {
			return next, true
		}
	}
}

// join adds a reader to other readers, if it may enter. It is the hot path of readers: one compare-and-swap, after a
// check of the lease's deadline.
func (r *readers) join() bool {
	_, joined := r.change(afterJoin)
	return joined
}

func afterJoin(state int64) (int64, bool) {
	return state + reader, state >= reader && state&closed == 0
}

// leave removes a reader if other readers stay. The last reader has to take mu, because it passes the place on.
func (r *readers) leave() bool {
	_, left := r.change(afterLeave)
	return left
}

func afterLeave(state int64) (int64, bool) { return state - reader, state >= 2*reader }

// number returns how many readers there are. While mu is held, it stays zero or stays above zero.
func (r *readers) number() int { return int(r.state.Load() / reader) }

// enter adds a reader, under mu, and closes. The unlock of mu decides whether more may join.
func (r *readers) enter() { r.change(afterEnter) }

func afterEnter(state int64) (int64, bool) { return state + reader | closed, true }

// depart removes a reader, under mu. It reports whether there was one, and whether it was the last. If it was the last,
// depart closes in the same step. Otherwise a reader could join between the two steps and find itself in a section that
// has ended.
func (r *readers) depart() (held, last bool) {
	state, held := r.change(afterDepart)
	return held, held && state < reader
}

func afterDepart(state int64) (int64, bool) {
	if state < 2*reader {
		return closed, state >= reader
	}
	return state - reader, true
}

// open sets whether more readers may join the current ones, under mu. It is called whenever mu is unlocked, because all
// that it depends on changes under mu only.
func (r *readers) open(open bool) {
	if open {
		r.change(afterOpen)
	} else {
		r.change(afterClose)
	}
}

// afterOpen is refused if there are no readers: the first reader enters under mu.
func afterOpen(state int64) (int64, bool) { return state &^ closed, state >= reader }

func afterClose(state int64) (int64, bool) { return state | closed, true }
