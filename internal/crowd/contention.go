package crowd

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Contentions knows the locks for which acquisitions of this process wait, or had to wait lately. A request for such a
// lock travels alone: a group would leave it, and it would arrive a round trip later, behind requests of other
// processes.
//
// The zero value is ready. Its mutex is taken under the mutex of a lease, and no other is taken under it.
type Contentions struct {
	Any   atomic.Bool // whether there are any
	mu    sync.Mutex
	locks map[string]contention
	most  int // locks to have before past ones are forgotten
}

type contention struct {
	waiting int           // acquisitions
	until   time.Duration // when the lock counts as free again, once none waits
}

// contendedFor is for how long a lock counts as contended after the last wait for it.
const contendedFor = 10 * time.Second

// contendedLeast locks are kept before past ones are looked for.
const contendedLeast = 64

// Add counts acquisitions that begin to wait, or with -1 an acquisition that waits no more. With 0 it notes a refusal.
func (c *Contentions) Add(lock string, waiting int, now time.Duration) {
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
	c.Any.Store(true)
}

func (c contention) stands(now time.Duration) bool { return c.waiting > 0 || now < c.until }

// Lately reports whether the lock is contended, if any is.
func (c *Contentions) Lately(lock string, now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, is := c.locks[lock]
	if is && !one.stands(now) {
		delete(c.locks, lock)
		c.Any.Store(len(c.locks) > 0)
	}
	return is && one.stands(now)
}
