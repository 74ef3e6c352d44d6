package scenarios_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/localqueue"
	"github.com/seed74116694/fencelock/lab/tools/noise/explore"
	"github.com/seed74116694/fencelock/lab/tools/noise/schedulenoise"
)

func TestTwoReaders(t *testing.T) {
	search(t, 3, func(c *caller) []func() { return []func(){c.read, c.read} })
}

func TestReaderJoinsOneThatLeaves(t *testing.T) {
	search(t, 3, func(c *caller) []func() {
		c.acquire(fencing.Read)
		return []func(){func() { c.release(fencing.Read) }, c.read}
	})
}

func TestReadersJoinOneThatLeaves(t *testing.T) {
	search(t, 2, func(c *caller) []func() {
		c.acquire(fencing.Read)
		return []func(){func() { c.release(fencing.Read) }, c.read, c.read}
	})
}

func TestReaderAndWriter(t *testing.T) {
	search(t, 3, func(c *caller) []func() { return []func(){c.read, c.write} })
}

func TestReadersAndWriter(t *testing.T) {
	search(t, 2, func(c *caller) []func() { return []func(){c.read, c.read, c.write} })
}

func TestReaderUpgradesBesideReader(t *testing.T) {
	search(t, 3, func(c *caller) []func() {
		c.acquire(fencing.Read)
		return []func(){c.upgrade, c.read}
	})
}

func TestReaderUpgradesBesideReaderAndWriter(t *testing.T) {
	search(t, 2, func(c *caller) []func() {
		c.acquire(fencing.Read)
		return []func(){c.upgrade, c.read, c.write}
	})
}

func search(t *testing.T, interruptions int, goroutines func(*caller) []func()) {
	n := explore.Run(t, interruptions, func(*testing.T) explore.World {
		c := &caller{}
		return explore.World{Goroutines: goroutines(c), Check: c.check}
	})
	t.Logf("%d schedules", n)
}

// caller uses a queue as an RWMutex does. The lock is never elsewhere: a leader is admitted at once.
type caller struct {
	mu      explore.Mutex
	queue   localqueue.Queue
	inside  map[fencing.Mode]int
	failure error
}

func (c *caller) read() {
	c.acquire(fencing.Read)
	c.release(fencing.Read)
}

func (c *caller) write() {
	c.acquire(fencing.Write)
	c.release(fencing.Write)
}

func (c *caller) acquire(mode fencing.Mode) {
	c.admit(mode)
	c.enter(mode)
}

func (c *caller) admit(mode fencing.Mode) {
	if mode == fencing.Read && c.queue.TryJoin() {
		return
	}
	c.mu.Lock()
	if c.queue.IsIdle() {
		c.queue.Enter(mode)
		c.unlock()
		return
	}
	w := localqueue.NewWaiter(mode, time.Time{})
	c.queue.Enqueue(w)
	c.unlock()
	<-w.Turn()
	schedulenoise.Point()
	if w.Admitted() {
		return
	}
	c.mu.Lock()
	c.queue.AdmitLeader()
	c.unlock()
}

func (c *caller) release(mode fencing.Mode) {
	c.inside[mode]--
	if mode == fencing.Read && c.queue.TryLeave() {
		return
	}
	c.mu.Lock()
	held, last := c.queue.Leave(mode)
	if !held {
		c.fail("leaves, and is told that it is not inside")
	}
	if !last {
		c.unlock()
		return
	}
	if _, waits := c.queue.Next(); waits {
		c.queue.AdmitFirst()
		c.unlock()
		return
	}
	c.unlock()
	c.mu.Lock() // after the release
	c.queue.Resume()
	c.unlock()
}

func (c *caller) upgrade() {
	c.mu.Lock()
	w := localqueue.NewWaiter(fencing.Write, time.Time{})
	held, _ := c.queue.BeginConversion(w, fencing.Read)
	if !held {
		c.fail("upgrades, and is told that it is not inside")
	}
	c.unlock()
	<-w.Turn()
	schedulenoise.Point()
	c.inside[fencing.Read]--
	c.mu.Lock()
	c.queue.EndConversion(fencing.Write)
	c.unlock()
	c.enter(fencing.Write)
	c.release(fencing.Write)
}

func (c *caller) unlock() {
	if c.queue.Readers() > 0 {
		if c.queue.MayJoin() {
			c.queue.JoinReaders()
		}
		c.queue.AllowJoin(true)
	}
	c.mu.Unlock()
}

// enter notes a holder, and compares it with those that have not begun to leave.
func (c *caller) enter(mode fencing.Mode) {
	if c.inside == nil {
		c.inside = map[fencing.Mode]int{}
	}
	c.inside[mode]++
	if n := c.inside[fencing.Write]; n > 1 || n == 1 && c.inside[fencing.Read] > 0 {
		c.fail("%d readers and %d writers are inside", c.inside[fencing.Read], n)
	}
	schedulenoise.Point()
}

func (c *caller) fail(format string, args ...any) {
	c.failure = errors.Join(c.failure, fmt.Errorf(format, args...))
}

func (c *caller) check() error {
	if c.failure == nil && (!c.queue.IsIdle() || c.queue.Readers() != 0) {
		return fmt.Errorf("all have left, and %d readers are counted", c.queue.Readers())
	}
	return c.failure
}
