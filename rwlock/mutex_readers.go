package rwlock

import "sync/atomic"

// readers are the readers who are in together, and whether more may join them. Joining others and leaving others behind
// need no mutex, so that readers do not wait for each other; the first and the last one come and go under the RWMutex's
// mu, and so it opens and closes.
//
// Each change is one transition from the state that there is: it is tried again where the state has changed meanwhile,
// and refused only by what the state says.
type readers struct{ state atomic.Int64 } // twice their number, and 1 where nobody may join

const (
	reader = 2
	closed = 1
)

// transition returns the state after a change, and whether the change is possible.
type transition func(state int64) (next int64, possible bool)

// change makes a transition, unless that is not possible, and returns the state after it.
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

// join enters beside others, if it may. It is the hot path of readers: one compare-and-swap, and the lease's deadline
// before it.
func (r *readers) join() bool {
	_, joined := r.change(afterJoin)
	return joined
}

func afterJoin(state int64) (int64, bool) {
	return state + reader, state >= reader && state&closed == 0
}

// leave leaves others behind, if there are any. The last one has to take mu: it hands the place on.
func (r *readers) leave() bool {
	_, left := r.change(afterLeave)
	return left
}

func afterLeave(state int64) (int64, bool) { return state - reader, state >= 2*reader }

// number returns how many there are. Under mu it is 0 or not 0 for as long as mu is held.
func (r *readers) number() int { return int(r.state.Load() / reader) }

// enter lets one more in, under mu. It closes: whether more may join is decided when mu is given back.
func (r *readers) enter() { r.change(afterEnter) }

func afterEnter(state int64) (int64, bool) { return state + reader | closed, true }

// depart takes one out, under mu. It reports whether there was one, and whether it was the last. To be the last it
// closes in the same step, or a reader could join between the two and find itself in a section that has ended.
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

// open says whether more may join those that are in, under mu. It is decided anew whenever mu is given back, since all
// that it depends on changes under mu only.
func (r *readers) open(open bool) {
	if open {
		r.change(afterOpen)
	} else {
		r.change(afterClose)
	}
}

// afterOpen is refused where nobody is in: the first enters under mu.
func afterOpen(state int64) (int64, bool) { return state &^ closed, state >= reader }

func afterClose(state int64) (int64, bool) { return state | closed, true }
