package engine

import "sync"

// withdrawal tracks the releases of a conversion that was given up. A master that has not answered its release may
// treat the conversion as a waiter for the lock. A nil withdrawal stands for no conversion.
type withdrawal struct {
	mu   sync.Mutex // guards what follows; no other mutex is acquired under it
	open int        // releases without an answer
	then func()     // called when open becomes 0; nil before after, and once called
}

// begin counts a release that is about to be sent.
func (w *withdrawal) begin() {
	if w != nil {
		w.mu.Lock()
		w.open++
		w.mu.Unlock()
	}
}

// end counts the answer of a release. A release that is given up has no answer: its hold has expired by then, or the
// master refuses the release for good. Then the next renewal reports waiters of other processes.
func (w *withdrawal) end() {
	if w == nil {
		return
	}
	var then func()
	w.mu.Lock()
	if w.open--; w.open == 0 {
		then, w.then = w.then, nil
	}
	w.mu.Unlock()
	if then != nil {
		then()
	}
}

// after calls f when every release that has begun is answered, or at once if there is none without an answer. It is
// called once.
func (w *withdrawal) after(f func()) {
	if w != nil {
		w.mu.Lock()
		if w.open > 0 {
			w.then = f
			f = nil
		}
		w.mu.Unlock()
	}
	if f != nil {
		f()
	}
}
