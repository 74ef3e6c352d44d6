package engine

import "sync"

// withdrawal is the releases of a conversion that is given up. A master that has not answered its release yet may take
// the conversion for one who waits for the lock. A nil withdrawal is that of no conversion.
type withdrawal struct {
	mu   sync.Mutex // guards what follows; no other is taken under it
	open int        // releases that are not answered
	then func()     // called when none is; nil before after and after the call
}

// begin counts a release that is about to be sent.
func (w *withdrawal) begin() {
	if w != nil {
		w.mu.Lock()
		w.open++
		w.mu.Unlock()
	}
}

// end counts the answer of a release. One that is given up has none: its hold has expired by then, or the master
// refuses the release for good. Then those who wait elsewhere are heard of by the next renewal.
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

// after calls f when every release that has begun is answered, at once if that is so. It is called once.
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
