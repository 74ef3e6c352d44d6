package engine

import (
	"context"
	"sync"
	"time"
)

// leaving are the locks that this process releases although no caller has asked for that. A single attempt for one of
// them waits for the masters' answers: a hold of its own process would refuse it. An attempt that queues need not wait:
// its place is behind that hold.
type leaving struct {
	mu    sync.Mutex // guards what follows; no other is taken under it
	locks map[string]chan struct{}
}

// add registers a lock. left is called once, when the masters have answered.
func (v *leaving) add(lock string) (left func()) {
	over := make(chan struct{})
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.locks == nil {
		v.locks = make(map[string]chan struct{})
	}
	v.locks[lock] = over // an earlier release was answered before this hold was granted
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.locks[lock] == over {
			delete(v.locks, lock)
		}
		close(over)
	}
}

// await returns when the lock has been released, when ctx ends, or after the given time.
func (v *leaving) await(ctx context.Context, lock string, most time.Duration) {
	v.mu.Lock()
	over := v.locks[lock]
	v.mu.Unlock()
	if over == nil {
		return
	}
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	select {
	case <-over:
	case <-ctx.Done():
	case <-timeout.C:
	}
}

// LetGo announces the release of a lease that the process has kept and does not use. It returns a function that
// releases the lease as ReleaseSoon does. LetGo itself sends nothing. From the announcement on, single attempts of this
// process for the lock wait until the masters have answered the release, at most for the release timeout.
func (e *Engine) LetGo(l *Lease) (release func()) {
	left := e.leaving.add(l.key.lock())
	return func() {
		l := l.lock()
		if l.expire(e.clock.Now()); l.phase != held {
			l.mu.Unlock()
			left()
			return
		}
		votes := newReleaseVotes(e) // before the registry forgets the lease, so that Close sees one of the two
		votes.then = left
		l.finish(ErrReleased)
		e.registry.forget(l.id)
		l.mu.Unlock()
		l.postReleases(votes)
	}
}
