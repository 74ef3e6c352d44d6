package rwlock

import (
	"net"
	"runtime"
	"time"
)

// gatheringConn has the commands of many callers leave in few writes. One goroutine writes for all of them. It runs as
// soon as the first caller of a burst has posted a command, so without this it would find one or two at a time, and a
// write costs the client more than anything else. After a write that followed another one closely it lets those go
// first who are ready to run: they post their commands, and the next write carries all of them. Where nobody is ready
// it goes on at once, so a single caller waits for nothing. A pause of a fixed length, such as rueidis' MaxFlushDelay,
// would be paid by few callers too.
//
// Where other goroutines keep the processors busy, the next write waits for one turn of theirs, as the goroutine that
// reads the replies does anyway.
type gatheringConn struct {
	net.Conn
	last     time.Time // of the last write; only the goroutine that writes uses it
	greeting greeting  // only the goroutine that reads uses it
}

// gatherWithin is how closely writes follow each other where many callers share a connection. A single caller's are a
// round trip apart.
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
