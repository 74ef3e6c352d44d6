package testredis

import (
	"net"
	"sync"
	"time"
)

// pump passes on the messages of one direction: read queues them at once, without limit, so that a sender never blocks
// on a broken link, and write delivers them when they are due.
type pump struct {
	wire     *wire
	dir      Direction
	src, dst net.Conn
	framer   framer
	lost     bool // used by write alone: the stream has a hole, nothing after it may arrive

	mu    sync.Mutex
	queue []item
	ready chan struct{} // holds one token while queue may have something
}

// item is a message in transit. Without data it is the end of the stream.
type item struct {
	data []byte
	raw  bool // not known to be RESP
	due  time.Time
	call *call // the call that it answers, if known
}

func newPump(w *wire, dir Direction, src, dst net.Conn) *pump {
	return &pump{wire: w, dir: dir, src: src, dst: dst, ready: make(chan struct{}, 1)}
}

// read queues everything that arrives from src until the stream ends.
func (p *pump) read(see func(frame []byte) (item, bool)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := p.src.Read(buf)
		for _, frame := range p.framer.feed(buf[:n]) {
			if it, ok := see(frame); ok {
				p.put(it)
			}
		}
		if err == nil {
			continue
		}
		if rest := p.framer.flush(); len(rest) > 0 {
			p.put(item{data: rest, raw: true})
		}
		p.put(item{})
		return
	}
}

func (p *pump) put(it item) {
	it.due = time.Now().Add(p.wire.link.latency(p.dir))
	if it.call != nil && it.call.rule != nil && it.call.rule.kind == delayReply {
		it.due = it.due.Add(it.call.rule.delay)
		it.call.rule.strike()
	}
	p.mu.Lock()
	p.queue = append(p.queue, it)
	p.mu.Unlock()
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// write delivers what is queued until the stream ends or the wire is cut.
func (p *pump) write(deliver func(item) bool) {
	for {
		it, ok := p.next()
		if !ok {
			return
		}
		if arrives := p.wire.link.pass(p.dir, p.wire.gone); !arrives {
			p.lost = true
		}
		switch {
		case it.data == nil:
			if !p.lost {
				closeWrite(p.dst)
			}
			return
		case !p.lost && !deliver(it):
			p.lost = true
		}
	}
}

// next waits for the oldest item to be due.
func (p *pump) next() (item, bool) {
	for {
		p.mu.Lock()
		if len(p.queue) > 0 {
			it := p.queue[0]
			p.queue = p.queue[1:]
			p.mu.Unlock()
			return it, p.await(it.due)
		}
		p.mu.Unlock()
		select {
		case <-p.ready:
		case <-p.wire.gone:
			return item{}, false
		}
	}
}

// await waits until the given time, and reports whether the wire is still intact.
func (p *pump) await(due time.Time) bool {
	wait := time.Until(due)
	if wait <= 0 {
		select {
		case <-p.wire.gone:
			return false
		default:
			return true
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.wire.gone:
		return false
	}
}

func (p *pump) send(data []byte) bool {
	_, err := p.dst.Write(data)
	return err == nil
}

// closeWrite signals the end of the stream to the far side, and leaves the other direction open where the connection
// can.
func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = conn.Close()
}
