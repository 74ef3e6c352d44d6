// Package localqueue orders the goroutines of one process that share a lock: its holders, and its waiters in the order
// of arrival. It decides which waiter is next. It knows nothing of Redis and of contexts, and reads no clock.
//
// The last holder to leave pauses the queue. Its caller then admits the first waiter under the hold that the process
// has on Redis, or gives that hold back, and resumes the queue. Without such a hold the first waiter leads: it alone
// acquires one, for itself and, if it reads, for the readers behind it up to the next writer.
package localqueue

import (
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// Mode is what a lock is held for: reading or writing.
type Mode = fencing.Mode

const (
	read  = fencing.Read
	write = fencing.Write
)

// Queue has the holders and the waiters of one lock in this process. The zero value is ready. The caller guards it with
// a mutex, except for TryJoin, TryLeave and Readers. No method blocks.
//
// Invariants between two calls:
//   - A writer is the only holder. Readers hold the lock together. A converting holder has readers next to it only
//     while it waits for them to leave.
//   - At most one waiter leads, and only while there is no holder.
//   - While the queue is paused there is no holder, and no goroutine enters or begins to lead.
//   - If there is no holder and the queue is not paused, the first waiter leads, unless a single attempt does.
type Queue struct {
	writer      bool
	readers     readers
	converting  *Waiter // a holder that is neither writer nor reader
	paused      bool    // the last holder has left, and the caller has not resumed the queue
	leader      *Waiter // the first waiter, or a single attempt
	first, last *Waiter // the waiters in the order of arrival
	enqueued    uint64  // how many waiters were ever enqueued
}

// TryJoin adds a reader to the current readers, if AllowJoin allows that. It needs no mutex.
func (q *Queue) TryJoin() bool { return q.readers.join() }

// TryLeave removes a reader if other readers stay. It needs no mutex. The last reader calls Leave, because its caller
// decides what follows.
func (q *Queue) TryLeave() bool { return q.readers.leave() }

// Readers returns the number of readers. It needs no mutex. While the caller has the mutex, the number stays zero or
// stays above zero.
func (q *Queue) Readers() int { return int(q.readers.state.Load() / reader) }

func (q *Queue) Holders() int {
	n := q.Readers()
	if q.writer || q.converting != nil {
		n++
	}
	return n
}

// IsIdle reports whether no goroutine holds the lock, waits for it or is leaving it, so that a new one may enter.
func (q *Queue) IsIdle() bool { return q.isUncontended() && !q.isHeld() }

// IsOpen reports whether a reader that comes now has only readers ahead of it, so that it may enter.
func (q *Queue) IsOpen() bool { return q.isUncontended() && q.Readers() > 0 }

// MayJoin reports whether the first waiter reads and all holders are readers, so that it may join them.
func (q *Queue) MayJoin() bool {
	return q.first != nil && q.first.mode == read && q.Readers() > 0 && q.converting == nil
}

// Next returns the mode of the first waiter, and whether there is one.
func (q *Queue) Next() (mode Mode, waits bool) {
	if q.first == nil {
		return 0, false
	}
	return q.first.mode, true
}

// AllowJoin sets whether TryJoin may succeed from now on: if the caller allows it, and only the current readers are
// ahead of a new one. The caller calls it before it unlocks the mutex, because the answer changes only under the mutex.
func (q *Queue) AllowJoin(allowed bool) { q.readers.open(allowed && q.isUncontended()) }

// isUncontended reports whether a goroutine that comes now has at most the current holders ahead of it.
func (q *Queue) isUncontended() bool {
	return q.first == nil && q.leader == nil && q.converting == nil && !q.paused
}

func (q *Queue) isHeld() bool { return q.writer || q.converting != nil || q.Readers() > 0 }

// mayLead reports whether a waiter may lead.
func (q *Queue) mayLead() bool { return q.leader == nil && !q.paused && !q.isHeld() }

func (q *Queue) Enqueue(w *Waiter) {
	q.enqueued++
	w.number = q.enqueued
	w.prev = q.last
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	if q.first == w {
		q.wake()
	}
}

// TryLead makes a single attempt the leader if it need not wait for another goroutine. A single attempt is never in the
// queue: it must not keep a place there while it asks Redis.
func (q *Queue) TryLead(w *Waiter) bool {
	if q.first != nil || !q.mayLead() {
		return false
	}
	q.leader, w.stage = w, leading
	return true
}

// wake makes the first waiter the leader if it may lead.
func (q *Queue) wake() {
	if w := q.first; w != nil && q.mayLead() {
		q.leader = w
		w.signal(leading)
	}
}

// Enter makes a goroutine that need not wait a holder: see IsIdle and IsOpen.
func (q *Queue) Enter(mode Mode) {
	if mode == write {
		q.writer = true
	} else {
		q.readers.enter()
	}
}

// AdmitLeader makes the leader a holder, together with the readers behind it if it reads.
func (q *Queue) AdmitLeader() {
	w := q.leader
	q.leader = nil
	q.remove(w)
	w.stage = admitted
	q.Enter(w.mode)
	if w.mode == read {
		q.JoinReaders()
	}
}

// AdmitFirst makes the first waiter a holder after the last holder has left, together with the readers behind it if it
// reads. It resumes the queue. The queue has no leader.
func (q *Queue) AdmitFirst() {
	w := q.first
	q.paused = false
	q.remove(w)
	q.Enter(w.mode)
	w.signal(admitted)
	if w.mode == read {
		q.JoinReaders()
	}
}

// JoinReaders admits the waiting readers up to the next writer beside the readers that hold the lock. Readers behind
// that writer wait with it: otherwise a stream of readers would keep the writer out for ever.
func (q *Queue) JoinReaders() {
	for q.first != nil && q.first.mode == read {
		w := q.first
		q.remove(w)
		q.readers.enter()
		w.signal(admitted)
	}
}

// GiveUp removes a waiter that has failed or stops waiting, and lets the next one lead. It does nothing to an admitted
// waiter, and reports whether it removed the waiter. A writer that gives up may have kept the readers behind it from
// joining the current readers: see MayJoin.
func (q *Queue) GiveUp(w *Waiter) bool {
	if w.stage == admitted {
		return false
	}
	q.remove(w)
	if q.leader == w {
		q.leader = nil
	}
	q.wake()
	return true
}

// Leave removes a holder of that mode. It reports whether there was one, and whether it was the last. The last one
// pauses the queue: the caller then calls AdmitFirst or Resume. If a reader converts, the last of the other readers
// signals it instead.
func (q *Queue) Leave(mode Mode) (held, last bool) {
	held, last = q.depart(mode)
	if last && q.converting != nil {
		q.converting.signal(leading)
		return held, false
	}
	q.paused = q.paused || last
	return held, last
}

// depart removes a holder, and reports whether there was one and whether no writer or reader is left.
func (q *Queue) depart(mode Mode) (held, last bool) {
	if mode == write {
		held = q.writer
		q.writer = false
		return held, held
	}
	return q.readers.depart()
}

// Resume ends the pause after the last holder has left. The first waiter leads.
func (q *Queue) Resume() {
	q.paused = false
	q.wake()
}

// BeginConversion makes a holder of mode from the converting one. It is signalled when there is no other holder. Until
// EndConversion no goroutine enters. BeginConversion reports whether there was such a holder, without another
// conversion under way, and whether it is alone.
func (q *Queue) BeginConversion(w *Waiter, from Mode) (held, alone bool) {
	if q.converting != nil {
		return false, false
	}
	held, alone = q.depart(from)
	if held {
		q.converting = w
	}
	if alone {
		w.signal(leading)
	}
	return held, alone
}

// IsConverting reports whether that holder converts.
func (q *Queue) IsConverting(w *Waiter) bool { return q.converting == w }

// IsUpgrading reports whether a reader is about to become the writer.
func (q *Queue) IsUpgrading() bool { return q.converting != nil && q.converting.mode == write }

// EndConversion makes the converting holder a reader or the writer. If it reads, the first waiter may join it: see
// MayJoin.
func (q *Queue) EndConversion(mode Mode) {
	q.converting = nil
	q.Enter(mode)
}

func (q *Queue) remove(w *Waiter) {
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case q.first == w:
		q.first = w.next
	default:
		return
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	w.prev, w.next = nil, nil
}

// Leader returns the waiter that leads, which may be a single attempt, and whether there is one.
func (q *Queue) Leader() (leader View, leads bool) {
	if q.leader == nil {
		return View{}, false
	}
	return q.leader.view(), true
}

// Converting returns the holder that converts its hold, and whether there is one. Its Mode is the new one.
func (q *Queue) Converting() (converting View, converts bool) {
	if q.converting == nil {
		return View{}, false
	}
	return q.converting.view(), true
}

// Waiters returns the waiters behind the cursor in their order, at most as many as into has room for, and moves the
// cursor behind them. The queue may change between two calls: a waiter that has left it is left out, and one that has
// come is at its end.
func (q *Queue) Waiters(c *Cursor, into []View) []View {
	into = into[:0]
	for w := q.behind(c.last); w != nil && len(into) < cap(into); w = w.next {
		into = append(into, w.view())
		c.last = w
	}
	return into
}

// behind returns the first waiter that came after w; w itself may have left the queue.
func (q *Queue) behind(w *Waiter) *Waiter {
	switch {
	case w == nil:
		return q.first
	case w.prev != nil || q.first == w:
		return w.next
	}
	next := q.first
	for next != nil && next.number <= w.number {
		next = next.next
	}
	return next
}

// Cursor is a place in a queue. The zero value is the place before the first waiter.
type Cursor struct{ last *Waiter }

// Waiter is one goroutine that waits for a lock, or converts its hold.
type Waiter struct {
	mode       Mode
	stage      stage
	since      time.Time
	turn       chan struct{} // has one signal after another goroutine has changed the stage
	number     uint64        // in the order of arrival, from 1; 0 if it was never enqueued
	prev, next *Waiter
}

type stage uint8

const (
	queued   stage = iota // it waits for other goroutines of this process
	leading               // it has the turn to acquire the lock
	admitted              // it is a holder
)

// NewWaiter returns a waiter for that mode, which is in no queue. since is when it came; the queue only shows it.
func NewWaiter(mode Mode, since time.Time) *Waiter {
	return &Waiter{mode: mode, since: since, turn: make(chan struct{}, 1)}
}

func (w *Waiter) Mode() Mode { return w.mode }

// Turn returns the channel that signals the waiter: it leads, it was admitted, or its conversion may go on. The waiter
// receives each signal, unless it gives up.
func (w *Waiter) Turn() <-chan struct{} { return w.turn }

// Admitted reports whether the waiter is a holder. The waiter calls it after a signal or under the queue's mutex.
func (w *Waiter) Admitted() bool { return w.stage == admitted }

// signal moves a waiter to its next stage. The waiter may be about to give up at the same time: GiveUp checks the
// stage, so that exactly one of the two happens.
func (w *Waiter) signal(s stage) {
	w.stage = s
	w.turn <- struct{}{} // never blocks: the waiter received the previous signal before it waited again
}

// View is a waiter as it is at one moment.
type View struct {
	Mode  Mode
	Since time.Time
	Leads bool
}

func (w *Waiter) view() View { return View{w.mode, w.since, w.stage == leading} }

// readers counts the readers that hold the lock together, and says whether more may join them. Joining other readers,
// and leaving while other readers stay, needs no mutex, so that readers do not wait for each other. The first reader
// enters and the last one leaves under the caller's mutex, and open is called under it.
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

// leave removes a reader if other readers stay. The last reader needs the mutex, because its caller decides
// what follows.
func (r *readers) leave() bool {
	_, changed := r.change(afterLeave)
	return changed
}

func afterLeave(state int64) (int64, bool) { return state - reader, state >= 2*reader }

// enter adds a reader, under the mutex, and closes. AllowJoin decides whether more may join.
func (r *readers) enter() { r.change(afterEnter) }

func afterEnter(state int64) (int64, bool) { return state + reader | closed, true }

// depart removes a reader, under the mutex. It reports whether there was one, and whether it was the last. If it was
// the last, depart closes in the same step. Otherwise a reader could join between the two steps and find itself in a
// section that has ended.
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

// open sets whether more readers may join the current ones, under the mutex.
func (r *readers) open(open bool) {
	if open {
		r.change(afterOpen)
	} else {
		r.change(afterClose)
	}
}

// afterOpen is refused if there are no readers: the first reader enters under the mutex.
func afterOpen(state int64) (int64, bool) { return state &^ closed, state >= reader }

func afterClose(state int64) (int64, bool) { return state | closed, true }
