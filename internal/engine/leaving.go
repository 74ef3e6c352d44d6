package engine

import (
	"slices"
	"sync"
	"sync/atomic"
)

// leaving has the locks of which this process gives back a hold on one master although no caller waits for that.
//
// A release is announced before it is sent: of a lease that the process has kept or lost, or of an attempt that was
// given up. The request of a single attempt is sent after the master's answers to these releases: a hold of its own
// process would refuse it. A request that queues need not wait: its place is behind that hold.
//
// A release in the background is posted before its caller can ask for the lock again. So the request is posted too. If
// the link keeps the order, it runs behind the release, without a wait. If not, the hold may refuse a single attempt,
// which then waits for the answer to the release and asks again. A request that queues is handed the lock by the
// release. A shared hold does not queue behind its own process: without that order it waits for the answer.
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

	announced, posted int // of the open ones, how many of either kind have no answer
}

type departure struct {
	posted   string // the id of the hold, if the release was posted; "" if it was announced; never changes
	answered bool
}

// count counts a release without an answer, or the answer to one.
func (all *departures) count(d *departure, change int) {
	if d.posted == "" {
		all.announced += change
	} else {
		all.posted += change
	}
}

// follower is a call that waits for the first so many releases of its lock.
type follower struct {
	releases int
	call     func()
}

// add registers a release of the lock: posted is the id of the hold, or "" for a release that is only announced. left
// is called once, when the master has answered or failed to.
func (v *leaving) add(lock, posted string) (left func()) {
	d := &departure{posted: posted}
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
	all.count(d, +1)
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
	all.count(d, -1)
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
	announced, posted := v.ahead(lock)
	return announced || len(posted) > 0
}

// ahead returns what a request for the lock has ahead of it that has no answer so far: whether a release is announced,
// and the releases from the first one on if some of them were posted. It copies nothing: a server that hangs has
// thousands of them.
func (v *leaving) ahead(lock string) (announced bool, posted []*departure) {
	if v.open.Load() == 0 {
		return false, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if all := v.locks[lock]; all != nil {
		announced = all.announced > 0
		if all.posted > 0 {
			posted = slices.Clip(all.open)
		}
	}
	return announced, posted
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
