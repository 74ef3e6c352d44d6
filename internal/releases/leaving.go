package releases

import (
	"sync"
	"sync/atomic"
)

// Leaving has the locks of which this process gives back a hold on one master although no caller waits for that: of a
// lease with BackgroundRelease, of one that the process has kept or lost, or of an attempt that was given up.
//
// Goroutine A unlocks in the background, and B tries the lock. If B's request overtakes the release, the master refuses
// it for the sake of A's hold. So a single attempt that left while releases were open, and is refused, asks again once
// they are answered. A request that queues needs nothing: it is handed the lock.
type Leaving struct {
	open  atomic.Int64 // releases without an answer, of all locks
	mu    sync.Mutex   // guards what follows; no other is taken under it
	locks map[string]*departures
}

// departures are open releases of one lock. The first attempt that waits for them closes the list: later releases are
// in the next one, which is open until this one is over. So attempts do not wait for each other's releases.
type departures struct {
	open      int
	followers []func()
}

// Add registers a release before it is sent. onAnswer is called once, when the master has answered or failed to.
func (v *Leaving) Add(lock string) (onAnswer func()) {
	v.open.Add(1)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.locks == nil {
		v.locks = make(map[string]*departures)
	}
	last := v.locks[lock]
	if last == nil || len(last.followers) > 0 {
		next := new(departures)
		if last != nil {
			next.open++
			last.followers = append(last.followers, func() { v.leave(lock, next) })
		}
		last, v.locks[lock] = next, next
	}
	last.open++
	return func() { v.open.Add(-1); v.leave(lock, last) }
}

// leave records that one of these releases is over.
func (v *Leaving) leave(lock string, of *departures) {
	v.mu.Lock()
	of.open--
	over := of.open == 0
	if over && v.locks[lock] == of {
		delete(v.locks, lock)
	}
	v.mu.Unlock()
	if over {
		for _, f := range of.followers {
			f()
		}
	}
}

// Any reports whether a release of the lock has no answer so far.
func (v *Leaving) Any(lock string) bool {
	if v.open.Load() == 0 {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.locks[lock] != nil
}

// After calls f once the releases that are open now are answered, at once if there are none.
func (v *Leaving) After(lock string, f func()) {
	v.mu.Lock()
	all := v.locks[lock]
	if all != nil {
		all.followers = append(all.followers, f)
	}
	v.mu.Unlock()
	if all == nil {
		f()
	}
}
