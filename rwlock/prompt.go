package rwlock

import (
	"net"
	"sync/atomic"
	"time"
)

// promptConn breaks when something was sent and nothing comes back for as long as the client's locks can wait. What was
// asked over it fails then, and the client dials again. So a connection that was dropped in silence, by a proxy or a
// firewall, is noticed in time for the leases, whatever interval and patience the client's own PINGs have.
//
// What counts is that anything comes, not which request it answers. An earlier answer that comes just after a request
// has left hides the silence that follows, until the next Write: a PING a second later, at the latest.
type promptConn struct {
	net.Conn
	limit func() time.Duration // how long the client's locks can wait

	timer   *time.Timer
	armed   atomic.Int64 // with this interval, in nanoseconds; 0 where the timer does not run
	silence atomic.Int32 // 0 once something has come since the last Write; else 1, and 1 for each tick since
	asked   atomic.Int64 // when the first Write of a silence began, in nanoseconds since opened
	slowest atomic.Int64 // answer of late, in nanoseconds
	opened  time.Time
	greeted bool // something has come; only the goroutine that reads uses it
}

const (
	silenceMost  = 3 * time.Second
	greetingMost = time.Second // for the first answer: how long answers take is not known yet
	silenceTicks = 3           // a tick that comes late, in a process that stood still, proves nothing alone
	slowerBy     = 3           // times the slowest answer of late is a silence
	slowestDecay = 8           // each answer takes this part off the slowest one
)

func newPromptConn(conn net.Conn, limit func() time.Duration) *promptConn {
	c := &promptConn{Conn: conn, limit: limit, opened: time.Now()}
	c.slowest.Store(int64(greetingMost / slowerBy))
	c.timer = time.AfterFunc(silenceMost, c.tick)
	c.timer.Stop()
	return c
}

func (c *promptConn) Write(b []byte) (int, error) {
	if c.silence.Load() == 0 {
		c.asked.Store(int64(time.Since(c.opened)))
		c.silence.Store(1)
		c.arm()
	}
	return c.Conn.Write(b)
}

func (c *promptConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.silence.Load() != 0 {
		took, slowest := int64(time.Since(c.opened))-c.asked.Load(), int64(0)
		if c.greeted {
			slowest = c.slowest.Load()
			slowest -= slowest / slowestDecay
		}
		c.greeted = true
		c.slowest.Store(max(took, slowest))
		c.silence.Store(0)
	}
	return n, err
}

func (c *promptConn) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}

// arm starts the timer where it does not run, or is to run faster. It runs on while answers come, so that a Write and
// the answer to it seldom touch the timer.
func (c *promptConn) arm() {
	before, interval := c.armed.Load(), c.interval()
	if (before == 0 || interval < before) && c.armed.CompareAndSwap(before, interval) {
		c.timer.Reset(time.Duration(interval))
	}
}

// interval is that between two ticks.
func (c *promptConn) interval() int64 {
	return min(max(int64(c.limit()), slowerBy*c.slowest.Load()), int64(silenceMost)) / silenceTicks
}

func (c *promptConn) tick() {
	switch silence := c.silence.Load(); {
	case silence == 0:
		c.armed.Store(0)
		if c.silence.Load() != 0 { // a Write has come before that, and left it to this timer
			c.arm()
		}
	case silence < silenceTicks:
		c.silence.CompareAndSwap(silence, silence+1)
		interval := c.interval()
		c.armed.Store(interval)
		c.timer.Reset(time.Duration(interval))
	default:
		_ = c.SetDeadline(time.Unix(1, 0)) // Read fails now, as one that was not answered in time
	}
}
