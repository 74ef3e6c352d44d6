package engine

import (
	"slices"
	"sync"
)

// leaving has the locks of which this process gives back a hold on one master although no caller waits for that: a
// lease that it has kept, or an attempt that does not queue and was given up. The request of a single attempt is sent
// after the master's answers to these releases: a hold of its own process would refuse it. A request that queues need
// not wait: its place is behind that hold.
type leaving struct {
	mu    sync.Mutex // guards what follows; no other is taken under it
	locks map[string][]*departure
}

// departure is one release that has no answer so far.
type departure struct{ before []*follower }

// follower is a call that waits for several departures.
type follower struct {
	open int
	call func()
}

// add registers a release of the lock. left is called once, when the master has answered or failed to.
func (v *leaving) add(lock string) (left func()) {
	d := new(departure)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.locks == nil {
		v.locks = make(map[string][]*departure)
	}
	v.locks[lock] = append(v.locks[lock], d)
	return func() { v.leave(lock, d) }
}

func (v *leaving) leave(lock string, d *departure) {
	v.mu.Lock()
	others := slices.DeleteFunc(v.locks[lock], func(other *departure) bool { return other == d })
	if v.locks[lock] = others; len(others) == 0 {
		delete(v.locks, lock)
	}
	var ready []*follower
	for _, f := range d.before {
		if f.open--; f.open == 0 {
			ready = append(ready, f)
		}
	}
	v.mu.Unlock()
	for _, f := range ready {
		f.call()
	}
}

// any reports whether a release of the lock has no answer so far.
func (v *leaving) any(lock string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.locks[lock]) > 0
}

// after calls f once the releases that are registered now have been answered, at once if there are none. It does not
// wait for those that are registered later, so that attempts beside each other do not hold each other up.
func (v *leaving) after(lock string, f func()) {
	v.mu.Lock()
	departures := v.locks[lock]
	next := &follower{open: len(departures), call: f}
	for _, d := range departures {
		d.before = append(d.before, next)
	}
	v.mu.Unlock()
	if len(departures) == 0 {
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
