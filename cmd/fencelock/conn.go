package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// dialOf dials a path as a Unix socket, and bounds what the server may answer.
func dialOf(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (conn net.Conn, err error) {
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	if config != nil {
		conn, err = (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, addr)
	} else {
		conn, err = dialer.DialContext(ctx, network, addr)
	}
	if err != nil {
		return nil, err
	}
	return &boundedConn{Conn: conn}, nil
}

// boundedConn ends with an error at an answer that no server gives. The client would take memory for each length that
// the answer names, or panic on a goroutine of its own.
type boundedConn struct {
	net.Conn
	head  []byte // the beginning of the line that is being read
	skip  int    // bytes of a text that follow
	depth int    // lists that have begun, one in the other, without an element so far
}

// The bounds of an answer: Redis has the first one too.
const (
	maxText  = 512 << 20
	maxItems = 1 << 22
	maxDepth = 100
	maxHead  = 24 // enough for each length
)

func (c *boundedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bad := c.examine(b[:n]); bad != nil {
		return 0, bad
	}
	return n, err
}

func (c *boundedConn) examine(b []byte) error {
	for len(b) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(b))
			c.skip, b = c.skip-n, b[n:]
			continue
		}
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		b = rest
		c.head = append(c.head, line[:min(len(line), maxHead-len(c.head))]...)
		if !ended {
			return nil
		}
		if err := c.header(strings.TrimSuffix(string(c.head), "\r")); err != nil {
			return err
		}
		c.head = c.head[:0]
	}
	return nil
}

// header notes the length that a line names.
func (c *boundedConn) header(line string) error {
	if line == "" {
		return nil
	}
	length, err := strconv.Atoi(line[1:])
	switch line[0] {
	case '$', '!', '=', ';':
		c.depth = 0
		switch {
		case length > maxText:
			return fmt.Errorf("the server answers with a text of %d bytes: it is broken, or no Redis", length)
		case length >= 0 && err == nil:
			c.skip = length + 2
		}
	case '*', '~', '>', '%', '|':
		if c.depth++; length > maxItems || c.depth > maxDepth {
			return fmt.Errorf("the server answers with a list of %d elements, %d deep: it is broken, or no Redis", length,
				c.depth)
		}
	default:
		c.depth = 0
	}
	return nil
}
