package testredis

import (
	"bytes"
	"fmt"
	"net"
	"strings"
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
	strays  chan struct{} // closed when what the client has sent may arrive; nil: it always may
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

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// stray makes the bytes of the client wait, and reports whether nobody else has.
func (w *wire) stray() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.strays != nil {
		return false
	}
	w.strays = make(chan struct{})
	return true
}

func (w *wire) deliverStrays() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.strays)
	w.strays = nil
}

// awaitStrays waits until what the client has sent may arrive, and reports whether it does: what a cut meets here is
// lost, though the connection to the server closes a moment after the wire has gone.
func (w *wire) awaitStrays() bool {
	w.mu.Lock()
	strays := w.strays
	w.mu.Unlock()
	if strays == nil {
		return true
	}
	select {
	case <-strays:
	case <-w.gone:
	}
	select {
	case <-w.gone:
		return false
	default:
		return true
	}
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
		copies := w.link.copies(push)
		return item{data: bytes.Repeat(frame, copies), call: w.confirmed(push)}, copies > 0
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

// encode writes a command as an array of bulk strings.
func encode(args []string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
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

// call is a command in flight: the rule that applies to its reply, and the form in which the reply will come.
type call struct {
	frame []byte
	rule  *rule
	twin  *twin
	// Subscriptions are answered by pushes alone, or by an error in band.
	subscription string
	confirmed    bool
}

// isScript reports whether the call runs a script that has keys, which may write. It is false for no call.
func (c *call) isScript() bool {
	if c == nil {
		return false
	}
	cmd := elements(c.frame)
	return len(cmd) > 3 && strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") && cmd[2] != "0"
}

// twin joins the two runs of a duplicated command.
type twin struct {
	call  *call  // the first run
	reply []byte // its reply, nil until it has come
}

func newCall(frame []byte, r *rule) *call {
	c := &call{frame: frame, rule: r}
	if name := strings.ToLower(commandName(frame)); strings.HasSuffix(name, "subscribe") {
		c.subscription = name
	}
	return c
}

// commandName returns the name of a command as the client wrote it.
func commandName(frame []byte) string {
	kind, n, end, err := header(frame)
	if err != nil || kind != '*' || n < 1 {
		return ""
	}
	return text(frame[end:])
}

// resolve holds back the first reply of a duplicated command until the second has come, so that both runs are over when
// the client goes on. If the first run found that the server does not know the script, and another client loaded it
// before the second run, only the second has run: the client gets the second reply.
func (tw *twin) resolve(l *Link, reply []byte) (item, bool) {
	if tw.reply == nil {
		tw.reply = reply
		return item{}, false
	}
	if strings.HasPrefix(string(tw.reply), "-NOSCRIPT") {
		return item{data: reply, call: tw.call}, true
	}
	l.checkTwice(elements(tw.call.frame), string(tw.reply), string(reply))
	return item{data: tw.reply, call: tw.call}, true
}

// popPending removes and returns the oldest call that a message in band can answer.
func (w *wire) popPending(frame []byte) *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.pending) > 0 {
		c := w.pending[0]
		w.pending = w.pending[1:]
		if c.subscription != "" && (c.confirmed || frame[0] != '-') {
			continue
		}
		return c
	}
	return nil
}

// confirmed returns the call that a push answers, if it is the first confirmation of a subscription.
func (w *wire) confirmed(push []string) *call {
	if len(push) == 0 || !strings.HasSuffix(push[0], "subscribe") {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.pending {
		if c.subscription == push[0] && !c.confirmed {
			c.confirmed = true
			return c
		}
	}
	return nil
}

// asPush returns the elements of a message out of band: a push, or its RESP2 form.
func asPush(frame []byte) []string {
	switch frame[0] {
	case '>':
		return elements(frame)
	case '*':
		_, n, end, err := header(frame)
		if err != nil || n < 3 || frame[end] != '$' {
			return nil
		}
		switch text(frame[end:]) {
		case "message", "pmessage", "smessage", "subscribe", "psubscribe", "ssubscribe",
			"unsubscribe", "punsubscribe", "sunsubscribe":
			return elements(frame)
		}
	}
	return nil
}
