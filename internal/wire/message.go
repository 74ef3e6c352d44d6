package wire

import (
	"strconv"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// Handoff is a grant to a waiter. No request was under way for it, so no request bounds its age from below.
type Handoff struct {
	Token     fencing.Token
	GrantedAt int64         // the server's time, in microseconds
	TTL       time.Duration // until the first renewal
	Server    string        // the process that granted it: process.lua
	First     fencing.Token // the first token of a shared hold's block; 0 for all other holds
	Contended bool          // waiters are behind a shared hold
}

// YieldRequest reports that a hold that goes before this one waits behind it.
type YieldRequest struct{}

// Contended reports that a hold waits behind a shared hold.
type Contended struct{}

// BreakNotice reports that an operator has broken a hold.
type BreakNotice struct{ By *Breaker }

// ReadMessage reads what a script has published to a process: a Handoff, a YieldRequest, Contended or BreakNotice, and
// the hold that it is about. Any client with the rights to publish can have sent it, so a text that no script would
// publish is no message: it is nil, about no hold.
//
//	hold                                         YieldRequest
//	hold wanted                                  Contended
//	hold broken operator:reason                   BreakNotice
//	hold token us ttl server                     Handoff
//	hold token us ttl server first waiting       Handoff of a shared hold
func ReadMessage(text string) (hold string, message any) {
	if hold, by, broken := strings.Cut(text, " broken "); broken && !strings.Contains(hold, " ") {
		if by := readBreaker(by); by != nil && hold != "" {
			return hold, BreakNotice{by}
		}
		return "", nil
	}
	const most = 7
	var f [most]string
	n, more := 0, true
	for ; more && n < most; n++ {
		if f[n], text, more = strings.Cut(text, " "); f[n] == "" {
			return "", nil
		}
	}
	switch {
	case more:
	case n == 1:
		message = YieldRequest{}
	case n == 2 && f[1] == "wanted":
		message = Contended{}
	case n == 5:
		message = readHandoff(f[4], [...]string{f[1], f[2], f[3], "0", "0"}, false)
	case n == most:
		message = readHandoff(f[4], [...]string{f[1], f[2], f[3], f[5], f[6]}, true)
	}
	if message == nil {
		return "", nil
	}
	return f[0], message
}

// readHandoff reads the numbers of a hand-off: token, us, ttl, first and waiting.
func readHandoff(server string, numbers [5]string, hasBlock bool) any {
	var n [len(numbers)]int64
	for i, text := range numbers {
		var err error
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil || n[i] < 0 {
			return nil
		}
	}
	token, us, ttl, first, waiting := n[0], n[1], n[2], n[3], n[4]
	isToken := token > 0 && token <= int64(fencing.MaxToken)
	if !isToken || ttl == 0 || ttl > maxMillis || first > token || hasBlock && first == 0 {
		return nil
	}
	return Handoff{
		Token: fencing.Token(token), GrantedAt: us, TTL: time.Duration(ttl) * time.Millisecond, Server: server,
		First: fencing.Token(first), Contended: waiting > 0,
	}
}
