package rwlock

import "sync/atomic"

// readers are the readers who are in together, and whether more may join them. Joining others and leaving others behind
// need no mutex, so that readers do not wait for each other; the first and the last one come and go under the RWMutex's
// mu, and so it opens and closes.
type readers struct{ state atomic.Int64 } // twice their number, and 1 where nobody may join

const (
	reader = 2
	closed = 1
)

// join enters beside others, if it may. It is the hot path of readers: one compare-and-swap, and the lease's deadline
// before it.
func (r *readers) join() bool {
	for {
		state := r.state.Load()
		if state&closed != 0 || state < reader {
			return false
		}
		if r.state.CompareAndSwap(state, state+reader) {
			return true
		}
	}
}

// leave leaves others behind, if there are any. The last one has to take mu: it hands the place on.
func (r *readers) leave() bool {
	for {
		state := r.state.Load()
		if state < 2*reader {
			return false
		}
		if r.state.CompareAndSwap(state, state-reader) {
			return true
		}
	}
}

// number returns how many there are. Under mu it is 0 or not 0 for as long as mu is held.
func (r *readers) number() int { return int(r.state.Load() / reader) }

// enter lets one more in, under mu. The first finds it closed.
func (r *readers) enter() { r.state.Add(reader) }

// depart takes one out, under mu. It reports whether there was one, and whether it was the last. To be the last it
// closes in the same step, or a reader could join between the two and find itself in a section that has ended.
func (r *readers) depart() (held, last bool) {
	if r.leave() {
		return true, false
	}
	for {
		switch state := r.state.Load(); {
		case state < reader:
			return false, false
		case state >= 2*reader: // another one has joined since
			return r.leave(), false
		case r.state.CompareAndSwap(state, closed):
			return true, true
		}
	}
}

// open says whether more may join those that are in, under mu. It is decided anew whenever mu is given back, since all
// that it depends on changes under mu only.
func (r *readers) open(open bool) {
	for {
		state := r.state.Load()
		next := state | closed
		if open && state >= reader {
			next = state &^ closed
		}
		if state == next || r.state.CompareAndSwap(state, next) {
			return
		}
	}
}
