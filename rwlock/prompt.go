package rwlock

import (
	"net"
	"sync/atomic"
	"time"
)

// promptConn breaks when something was sent and nothing comes back for 2 s, or longer if answers are slow. The pending
// requests then fail, and the client dials again. So a connection that a proxy or a firewall dropped silently is
// noticed in time for a lease with a TTL of 5 s or more, with any interval and timeout of the client's own PINGs.
//
// A shorter time would save leases with a shorter TTL, but a server that pauses would then fail calls that it answers
// in time: a Release waits for 2 s by default.
//
// Any received data counts, not only the answer to a given request. An earlier answer that comes just after a request
// was sent hides the silence that follows, until the next Write: a PING a second later, at the latest.
type promptConn struct {
	net.Conn
	timer   *time.Timer
	armed   atomic.Int64 // the interval of the timer, in nanoseconds; 0 if it does not run
	silence atomic.Int32 // 0 once something was received since the last Write; else 1, plus 1 for each tick since
	asked   atomic.Int64 // when the first Write of a silence began, in nanoseconds since opened
	slowest atomic.Int64 // the slowest recent answer, in nanoseconds
	opened  time.Time
	greeted bool // something was received; only the goroutine that reads uses it
}

const (
	silenceLeast = 2 * time.Second // the default release timeout
	silenceMost  = 3 * time.Second // also for the first answer: how long answers take is not known before
	silenceTicks = 3               // one late tick, in a process that stood still, proves nothing alone
	slowerBy     = 3               // a silence lasts this many times the slowest recent answer
	slowestDecay = 8               // each answer reduces slowest by one part in slowestDecay
)

func newPromptConn(conn net.Conn) *promptConn {
	c := &promptConn{Conn: conn, opened: time.Now()}
	c.slowest.Store(int64(silenceMost / slowerBy))
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

// arm starts the timer if it does not run, or should run faster. The timer runs on while answers come, so that a Write
// and its answer seldom touch it.
func (c *promptConn) arm() {
	before, interval := c.armed.Load(), c.interval()
	if (before == 0 || interval < before) && c.armed.CompareAndSwap(before, interval) {
		c.timer.Reset(time.Duration(interval))
	}
}

// interval returns the time between two ticks.
func (c *promptConn) interval() int64 {
	return min(max(int64(silenceLeast), slowerBy*c.slowest.Load()), int64(silenceMost)) / silenceTicks
}

func (c *promptConn) tick() {
	switch silence := c.silence.Load(); {
	case silence == 0:
		c.armed.Store(0)
		if c.silence.Load() != 0 { // a Write came before that Store and relied on this timer
			c.arm()
		}
	case silence < silenceTicks:
		c.silence.CompareAndSwap(silence, silence+1)
		interval := c.interval()
		c.armed.Store(interval)
		c.timer.Reset(time.Duration(interval))
	default:
		_ = c.SetReadDeadline(time.Unix(1, 0)) // Read fails now, as after a timeout, and the client closes the connection
	}
}
