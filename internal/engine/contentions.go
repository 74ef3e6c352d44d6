package engine

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// contentions knows the locks for which acquisitions of this process wait, or had to wait lately. A request for such a
// lock travels alone: a group would leave it, and it would arrive a round trip later, behind those of other processes
// that have asked meanwhile. Its mutex is acquired under a lease's mutex, and no other under it.
type contentions struct {
	any   atomic.Bool // whether there are any
	mu    sync.Mutex
	locks map[string]contention
	most  int // locks to have before those of the past are forgotten
}

type contention struct {
	waiting int           // acquisitions
	until   time.Duration // when the lock counts as free again, once none waits
}

// contendedFor is for how long a lock counts as contended after the last wait for it.
const contendedFor = 10 * time.Second

// contendedLeast is the least number of locks that are kept before those of the past are looked for.
const contendedLeast = 64

// add counts acquisitions that begin to wait, or with -1 one that waits no more. With 0 it notes a refusal.
func (c *contentions) add(lock string, waiting int, now time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.locks) >= max(c.most, contendedLeast) {
		maps.DeleteFunc(c.locks, func(_ string, one contention) bool { return !one.stands(now) })
		c.most = 2 * len(c.locks)
	}
	if c.locks == nil {
		c.locks = make(map[string]contention)
	}
	c.locks[lock] = contention{c.locks[lock].waiting + waiting, now + contendedFor}
	c.any.Store(true)
}

func (c contention) stands(now time.Duration) bool { return c.waiting > 0 || now < c.until }
