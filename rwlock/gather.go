package rwlock

import (
	"net"
	"runtime"
	"time"
)

// gatheringConn sends the commands of many callers in few writes. One goroutine of the client writes for all callers.
// It becomes runnable as soon as the first caller of a burst has posted a command, so without gatheringConn it would
// find one or two commands at a time, and a write costs the client more than anything else. After a write that closely
// followed another write, gatheringConn yields to the goroutines that are ready to run: they post their commands, and
// the next write carries all of them. If no goroutine is ready, it continues at once, so a single caller does not wait.
// A pause of a fixed length, such as rueidis' MaxFlushDelay, would delay a few callers too.
//
// If other goroutines keep the processors busy, the next write waits for one of their turns, as the goroutine that
// reads the replies does anyway.
type gatheringConn struct {
	net.Conn
	last     time.Time // of the last write; used only by the goroutine that writes
	greeting greeting  // used only by the goroutine that reads
}

// gatherWithin is the largest distance of two writes that count as a burst of many callers on one connection. The
// writes of a single caller are a round trip apart.
const gatherWithin = 200 * time.Microsecond

func (c *gatheringConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.greeting.over {
		err = c.greeting.hear(c.Conn, b[:n], err)
	}
	return n, err
}

func (c *gatheringConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	now := time.Now()
	if now.Sub(c.last) < gatherWithin {
		runtime.Gosched()
	}
	c.last = now
	return n, err
}
