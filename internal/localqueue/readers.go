package localqueue

import "sync/atomic"

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
	_, left := r.change(afterLeave)
	return left
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
