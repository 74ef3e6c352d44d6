//go:build unix

package testredis

import (
	"net"
	"sync"
	"time"
)

// commandLimit bounds a command, so that a command to a frozen server fails instead of hanging.
const commandLimit = 5 * time.Second

// commandConn runs single commands over a plain connection, which it opens when needed.
type commandConn struct {
	mu   sync.Mutex
	conn net.Conn
}

// do runs a command and returns string, int64, nil or []any of these; an error reply is an error.
// A command is never sent twice: after a failure the next one opens another connection.
func (c *commandConn) do(addr string, limit time.Duration, args ...string) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	msg, err := c.exchange(addr, limit, encode(args))
	if err != nil {
		c.drop()
		return nil, err
	}
	return value(msg)
}

func (c *commandConn) exchange(addr string, limit time.Duration, request []byte) ([]byte, error) {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", addr, limit)
		if err != nil {
			return nil, err
		}
		c.conn = conn
	}
	if err := c.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	stream := respStream{w: c.conn, r: c.conn}
	return stream.exchange(request)
}

func (c *commandConn) drop() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func (c *commandConn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}
