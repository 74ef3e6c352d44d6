package engine

import (
	"sync"
	"sync/atomic"
)

// leaving has the locks of which this process gives back a hold on one master although no caller waits for that.
//
// A release is registered before it is sent: of a lease with BackgroundRelease, of one that the process has kept or
// lost, or of an attempt that was given up. The request of a single attempt is sent after the master's answers to these
// releases, because a hold of its own process would refuse it. So is that of a shared hold, which would take its own
// process for a contender. A request that queues need not wait: it is posted behind the releases, and one that
// overtakes them is handed the lock.
type leaving struct {
	open  atomic.Int64 // releases without an answer, of all locks
	mu    sync.Mutex   // guards what follows; no other is taken under it
	locks map[string]*departures
}

// departures are the releases of one lock in their order, from the first that has no answer so far. Each release and
// each follower is in one list once: while a server hangs, attempts are given up and begun by the thousand.
type departures struct {
	open      []*departure
	answered  int        // how many releases were before these
	followers []follower // in their order
}

type departure struct{ answered bool }

// follower is a call that waits for the first so many releases of its lock.
type follower struct {
	releases int
	call     func()
}

// add registers a release of the lock. left is called once, when the master has answered or failed to.
func (v *leaving) add(lock string) (left func()) {
	d := new(departure)
	v.open.Add(1)
	v.mu.Lock()
	defer v.mu.Unlock()
	all := v.locks[lock]
	if all == nil {
		if v.locks == nil {
			v.locks = make(map[string]*departures)
		}
		all = new(departures)
		v.locks[lock] = all
	}
	all.open = append(all.open, d)
	return func() {
		for _, f := range v.leave(lock, d) {
			f.call()
		}
	}
}

// leave records the answer to a release, and returns the followers that need not wait any more.
func (v *leaving) leave(lock string, d *departure) (ready []follower) {
	v.mu.Lock()
	defer v.mu.Unlock()
	d.answered = true
	v.open.Add(-1)
	all := v.locks[lock]
	for len(all.open) > 0 && all.open[0].answered {
		all.open = all.open[1:]
		all.answered++
	}
	for len(all.followers) > 0 && all.followers[0].releases <= all.answered {
		ready = append(ready, all.followers[0])
		all.followers = all.followers[1:]
	}
	if len(all.open) == 0 {
		delete(v.locks, lock)
	}
	return ready
}

// any reports whether a release of the lock has no answer so far.
func (v *leaving) any(lock string) bool {
	if v.open.Load() == 0 {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.locks[lock] != nil
}

// after calls f once the releases that are registered now have been answered, at once if there are none. It does not
// wait for those that are registered later, so that concurrent attempts do not hold each other up.
func (v *leaving) after(lock string, f func()) {
	v.mu.Lock()
	all := v.locks[lock]
	if all != nil {
		all.followers = append(all.followers, follower{all.answered + len(all.open), f})
	}
	v.mu.Unlock()
	if all == nil {
		f()
	}
}
