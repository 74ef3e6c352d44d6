package localqueue_test

import (
	"math/rand/v2"
	"testing"
)

// FuzzQueue lets holders, waiters, single attempts and conversions come and go in any order. After each event the queue
// is in the state of the model, and no waiter has been forgotten. In the end every waiter gets the lock.
func FuzzQueue(f *testing.F) {
	source := rand.NewChaCha8([32]byte{1})
	for range 20 {
		seed := make([]byte, 200)
		_, _ = source.Read(seed)
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, events []byte) { play(t, events) })
}

// TestQueueAtRandom plays more runs than a fuzz target's seeds do.
func TestQueueAtRandom(t *testing.T) {
	source := rand.NewChaCha8([32]byte{2})
	events := make([]byte, 100)
	for range 500 {
		_, _ = source.Read(events)
		play(t, events)
	}
}

func play(t testing.TB, events []byte) {
	w := &world{t: t}
	for _, e := range events {
		w.step(int(e%16), int(e/16))
	}
	w.calm()
}

// step is one event.
func (w *world) step(event, n int) {
	mode := read
	if n%2 == 1 {
		mode = write
	}
	switch event {
	case 0, 1, 2:
		w.enqueue(mode)
	case 3:
		w.enter(mode)
	case 4:
		w.tryLead(mode)
	case 5:
		w.tryJoin()
	case 6:
		w.tryLeave()
	case 7, 8:
		w.leave(mode)
	case 9:
		w.handOn(n%4 > 0)
	case 10:
		w.lead(n%4 > 0)
	case 11:
		w.join()
	case 12:
		w.giveUp(n)
	case 13, 14:
		w.beginConversion(mode)
	case 15:
		w.endConversion(n%2 > 0)
	}
}
