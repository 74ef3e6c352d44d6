package testredis

import "strings"

// call is a command in flight: the rule that applies to its reply, and the form in which the reply will come.
type call struct {
	frame []byte
	rule  *rule
	twin  *twin
	// Subscriptions are answered by pushes alone, or by an error in band.
	subscription string
	confirmed    bool
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
