package localqueue

// Waiter is one goroutine that waits for a lock, or converts its hold.
type Waiter struct {
	mode       Mode
	stage      stage
	turn       chan struct{} // has one signal after another goroutine has changed the stage
	prev, next *Waiter
}

// stage is the progress of a waiter.
type stage uint8

const (
	queued   stage = iota // it waits for other goroutines of this process
	leading               // it has the turn to acquire the lock
	admitted              // it is a holder
)

// NewWaiter returns a waiter for that mode, which is in no queue.
func NewWaiter(mode Mode) *Waiter { return &Waiter{mode: mode, turn: make(chan struct{}, 1)} }

// Mode returns the mode that the waiter waits for.
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
