package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
)

var errCut = errors.New("the bench has cut this link")

// link is the network of one client. It can be cut like a cable.
type link struct {
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func newLink() *link { return &link{conns: make(map[net.Conn]struct{})} }

// dial has the shape of rueidis.ClientOption.DialCtxFn.
func (l *link) dial(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
	if l.isCut() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errCut}
	}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return l.keep(conn)
}

func (l *link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

func (l *link) keep(conn net.Conn) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut { // while it was being dialled
		return nil, errors.Join(errCut, conn.Close())
	}
	l.conns[conn] = struct{}{}
	return &linkedConn{Conn: conn, link: l}, nil
}

// sever closes every connection and refuses new ones until mend.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for conn := range l.conns {
		_ = conn.Close()
	}
	clear(l.conns)
}

func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
}

type linkedConn struct {
	net.Conn
	link *link
}

// Close takes the connection off its link.
func (c *linkedConn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c.Conn)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
