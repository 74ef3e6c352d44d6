package testredis

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"time"
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

// faults apply to single commands of a link. They also see and count the commands that pass.
type faults struct {
	arrive func() // called before each command reaches the server; may be nil

	mu        sync.Mutex
	rules     []*rule
	pushes    func(push []string) bool
	doubled   func(push []string) bool
	duplicate func(cmd []string) bool
	check     func(cmd []string, first, second string)
	refusal   func(cmd []string) string
	onCommand func(cmd []string)
	calls     map[string]int
}

// DropNextReply lets the next matching command run on the server and then cuts its connection
// instead of delivering the reply. The channel is closed when that has happened.
func (f *faults) DropNextReply(match func(cmd []string) bool) <-chan struct{} {
	return f.arm(&rule{kind: dropReply, match: match})
}

// MuteNextReply lets the next matching command run on the server. Its reply and everything that follows on that
// connection vanish while the connection stays open. The channel is closed when that has happened.
func (f *faults) MuteNextReply(match func(cmd []string) bool) <-chan struct{} {
	return f.arm(&rule{kind: muteReply, match: match})
}

// DelayNextReply lets the next matching command run on the server. Its reply, and everything that follows on that
// connection, comes d later. The channel is closed when the server has answered.
func (f *faults) DelayNextReply(match func(cmd []string) bool, d time.Duration) <-chan struct{} {
	return f.arm(&rule{kind: delayReply, match: match, delay: d})
}

// DropNextCommand cuts the connection before the next matching command reaches the server.
// The channel is closed when that has happened.
func (f *faults) DropNextCommand(match func(cmd []string) bool) <-chan struct{} {
	return f.arm(&rule{kind: dropCommand, match: match})
}

// DropPushes makes the matching pub/sub messages vanish ("message", channel, payload) until it is called again; nil
// ends it. Confirmations of subscriptions are never lost: they are replies, which a client pairs with its commands by
// their order, and a server or a network loses such a reply only together with the connection.
func (f *faults) DropPushes(match func(push []string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pushes = match
}

// DuplicatePushes makes the matching pub/sub messages arrive twice until it is called again; nil ends it.
func (f *faults) DuplicatePushes(match func(push []string) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.doubled = match
}

// Duplicate makes each matching command run twice, directly one after the other. Once both
// are over, check, which may be nil, sees both replies as RESP, and the client gets the first one. It lasts
// until called again; nil ends it.
func (f *faults) Duplicate(match func(cmd []string) bool, check func(cmd []string, first, second string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.duplicate, f.check = match, check
}

// Deny answers each command for which refusal returns a text with that text, as an error, without running it. It lasts
// until called again; nil ends it.
func (f *faults) Deny(refusal func(cmd []string) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refusal = refusal
}

// OnCommand passes each command to see just before it reaches the server, and delays the command until see returns; nil
// ends it.
func (f *faults) OnCommand(see func(cmd []string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onCommand = see
}

func (f *faults) arm(r *rule) <-chan struct{} {
	r.struck = make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, r)
	return r.struck
}

// judge counts a command that is about to reach the server, and returns what will happen to it.
func (f *faults) judge(frame []byte) verdict {
	f.mu.Lock()
	rules, duplicate, see, refusal := f.rules, f.duplicate, f.onCommand, f.refusal
	f.mu.Unlock()

	var v verdict
	if len(rules) > 0 || duplicate != nil || see != nil || refusal != nil {
		cmd := elements(frame)
		if see != nil {
			see(cmd)
		}
		if refusal != nil {
			if v.refusal = refusal(cmd); v.refusal != "" {
				return v
			}
		}
		v.twice = duplicate != nil && duplicate(cmd)
		v.rule = f.take(rules, cmd)
	}
	if v.rule != nil && v.rule.kind == dropCommand {
		return v
	}
	if f.arrive != nil {
		f.arrive()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	name := strings.ToUpper(commandName(frame))
	f.calls[name]++
	if v.twice {
		f.calls[name]++
	}
	return v
}

// take disarms and returns the oldest rule that matches; match runs outside the lock, so that it may
// use the link.
func (f *faults) take(rules []*rule, cmd []string) *rule {
	for _, r := range rules {
		if !r.match(cmd) {
			continue
		}
		f.mu.Lock()
		for i, armed := range f.rules {
			if armed == r {
				f.rules = append(f.rules[:i:i], f.rules[i+1:]...)
				f.mu.Unlock()
				return r
			}
		}
		f.mu.Unlock()
	}
	return nil
}

// copies returns how often a push arrives.
func (f *faults) copies(push []string) int {
	switch push[0] {
	case "message", "pmessage", "smessage":
	default:
		return 1
	}
	f.mu.Lock()
	loses, doubles := f.pushes, f.doubled
	f.mu.Unlock()
	switch {
	case loses != nil && loses(push):
		return 0
	case doubles != nil && doubles(push):
		return 2
	default:
		return 1
	}
}

// checkTwice passes both replies of a duplicated command to the check function, if there is one.
func (f *faults) checkTwice(cmd []string, first, second string) {
	f.mu.Lock()
	check := f.check
	f.mu.Unlock()
	if check != nil {
		check(cmd, first, second)
	}
}

// Calls returns how many commands of that name have reached the server over this link.
// Commands that a script runs do not count.
func (f *faults) Calls(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[strings.ToUpper(name)]
}

// AllCalls returns how many commands have reached the server, by upper-case name.
func (f *faults) AllCalls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}

// ResetCalls sets all counts to zero.
func (f *faults) ResetCalls() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.calls)
}
