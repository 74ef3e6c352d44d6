package engine

import "sync"

// leaving has the locks of which this process gives back a hold on one master although no caller waits for that: a
// lease that it has kept, or an attempt that does not queue and was given up. The request of a single attempt is sent
// after the master's answers to these releases: a hold of its own process would refuse it. A request that queues need
// not wait: its place is behind that hold.
type leaving struct {
	mu    sync.Mutex // guards what follows; no other is taken under it
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

// announce registers a release of the lock on every master. Each function of left is called once.
func (e *Engine) announce(lock string) (left []func()) {
	left = make([]func(), len(e.masters))
	for i := range left {
		left[i] = e.leaving[i].add(lock)
	}
	return left
}

// LetGo announces the release of a lease that the process has kept and does not use. It returns a function that
// releases the lease as ReleaseSoon does. LetGo itself sends nothing. From the announcement on, single attempts of this
// process for the lock are sent to a master after its answer to the release.
func (e *Engine) LetGo(l *Lease) (release func()) {
	left := e.announce(l.key.lock())
	return func() {
		l := l.lock()
		defer l.mu.Unlock()
		if l.expire(e.clock.Now()); l.phase != held {
			for _, f := range left {
				l.mu.afterUnlock(f)
			}
			return
		}
		l.finish(ErrReleased)
		l.releaseAtOnce(left)
	}
}
