package testredis

import (
	"net"
	"sync"
)

// wire is one connection over a link: a pump for each direction, and the commands that the server
// has not answered yet.
type wire struct {
	link     *Link
	toServer *pump
	toClient *pump
	gone     chan struct{} // closed by shut
	shutOnce sync.Once

	mu      sync.Mutex
	pending []*call
}

func newWire(l *Link, client, server net.Conn) *wire {
	w := &wire{link: l, gone: make(chan struct{})}
	w.toServer = newPump(w, ToServer, client, server)
	w.toClient = newPump(w, ToClient, server, client)
	return w
}

// run carries bytes until both directions have ended.
func (w *wire) run() {
	var wg sync.WaitGroup
	wg.Go(func() { w.toServer.read(w.sent) })
	wg.Go(func() { w.toServer.write(w.deliverCommand) })
	wg.Go(func() { w.toClient.read(w.answered) })
	wg.Go(func() { w.toClient.write(w.deliverReply) })
	wg.Wait()
	w.shut(func(*net.TCPConn) {})
}

// cut closes both sides and drops everything in transit. TCP connections are reset.
func (w *wire) cut() {
	w.shut(func(tcp *net.TCPConn) { _ = tcp.SetLinger(0) })
}

func (w *wire) shut(before func(*net.TCPConn)) {
	w.shutOnce.Do(func() {
		close(w.gone)
		for _, conn := range []net.Conn{w.toServer.src, w.toServer.dst} {
			if tcp, ok := conn.(*net.TCPConn); ok {
				before(tcp)
			}
			_ = conn.Close()
		}
	})
}

// sent handles a message of the client when it is read.
func (w *wire) sent(frame []byte) (item, bool) {
	return item{data: frame, raw: w.toServer.framer.raw}, true
}

// answered handles a message of the server when it is read, and finds the call that it answers.
func (w *wire) answered(frame []byte) (item, bool) {
	if w.toClient.framer.raw {
		return item{data: frame}, true
	}
	if push := asPush(frame); push != nil {
		if w.link.losesPush(push) {
			return item{}, false
		}
		return item{data: frame, call: w.confirmed(push)}, true
	}
	c := w.popPending(frame)
	if c != nil && c.twin != nil {
		return c.twin.resolve(w.link, frame)
	}
	return item{data: frame, call: c}, true
}

// deliverCommand passes a message of the client to the server, and reports whether to go on.
func (w *wire) deliverCommand(it item) bool {
	if it.raw || commandName(it.data) == "" {
		return w.toServer.send(it.data)
	}
	verdict := w.link.judge(it.data)
	if verdict.rule != nil && verdict.rule.kind == dropCommand {
		w.cut()
		verdict.rule.strike()
		return false
	}
	if verdict.refusal != "" {
		w.push(newCall(it.data, nil))
		return w.toServer.send(refusing(verdict.refusal))
	}
	first := newCall(it.data, verdict.rule)
	if !verdict.twice {
		w.push(first)
		return w.toServer.send(it.data)
	}
	first.twin = &twin{call: first}
	w.push(first)
	w.push(&call{frame: it.data, twin: first.twin})
	for range 2 {
		if !w.toServer.send(it.data) {
			return false
		}
	}
	return true
}

// refusing returns a command to which the server answers with that refusal, in order.
func refusing(refusal string) []byte {
	return encode([]string{"EVAL", "return redis.error_reply(ARGV[1])", "0", refusal})
}

// deliverReply passes a message of the server to the client, and reports whether to go on.
func (w *wire) deliverReply(it item) bool {
	if it.call == nil || it.call.rule == nil {
		return w.toClient.send(it.data)
	}
	switch it.call.rule.kind {
	case dropReply:
		w.cut()
		it.call.rule.strike()
		return false
	case muteReply:
		w.toClient.lost = true
		it.call.rule.strike()
		return true
	default:
		return w.toClient.send(it.data)
	}
}

func (w *wire) push(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = append(w.pending, c)
}
