package testredis

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Proxy is a link with a listener on loopback, in front of a real server. It passes every byte on unchanged except for
// the faults that are active. Refused connections are reset after they were accepted, and dialling never hangs: the
// kernel does both, and the proxy cannot change it.
type Proxy struct {
	*Link
	listener net.Listener

	mu     sync.Mutex
	target string
}

// NewProxy listens on a free port and carries connections to target. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy of %s: %v", target, err)
	}
	p := &Proxy{listener: listener, target: target}
	p.Link = newLink(p.dialTarget)
	p.Link.option = ClientOption(p.Addr())

	var wg sync.WaitGroup
	wg.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Link.close()
		wg.Wait()
	})
	return p
}

// Addr returns the host:port that clients use.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Retarget makes new connections go to another server, as a failover behind one address does.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *Proxy) dialTarget(ctx context.Context, _ string) (net.Conn, error) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, "tcp", target)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.serve(client) {
			_ = client.(*net.TCPConn).SetLinger(0)
			_ = client.Close()
		}
	}
}

func (p *Proxy) serve(client net.Conn) bool {
	if p.refuses() {
		return false
	}
	server, err := p.dial(context.Background(), "")
	return err == nil && p.carry(client, server)
}
