package transport

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
)

// meaning classifies a reply to a script call by whether and how to send the call again.
type meaning int

const (
	isFinal         meaning = iota // for the caller: the script ran, was refused, or may have run
	isUnknownScript                // after a restart, a failover, SCRIPT FLUSH
	isElsewhere                    // another server has the slot
	isMigrating                    // the slot is moving to another server, and some of the keys are not here
	isCrossSlot                    // the server accepts only one lock per call
)

// meaning classifies a reply of the node. If the reply indicates a change of the servers of a Cluster, it requests a
// new slot map. Every meaning except isFinal implies that the call did not run, with one exception: a call on a client
// that has given up its server may have run. To send it again is safe, because every script may run twice.
func (n *Node) meaning(r rueidis.RedisResult) meaning {
	err := r.Error()
	if n.direct && errors.Is(err, rueidis.ErrClosing) {
		n.stale.Store(true)
		n.m.suspect()
		return isElsewhere
	}
	refusal, ok := refusalOf(err)
	if !ok {
		return isFinal
	}
	switch code := refusalCode(refusal.Error()); {
	case code == "NOSCRIPT":
		return isUnknownScript
	case crossesSlots(refusal.Error()):
		return isCrossSlot
	case code == "TRYAGAIN" && !n.m.Standalone():
		return isMigrating
	case !n.direct: // the node's client follows redirections itself
	case code == "MOVED":
		n.m.suspect()
		return isElsewhere
	case code == "ASK":
		return isElsewhere
	case code == "CLUSTERDOWN":
		n.m.suspect()
	}
	return isFinal
}

// crossesSlots reports whether a server refuses keys because they are in different slots. Some clusters behind one
// address use a different text for this refusal.
func crossesSlots(text string) bool {
	return strings.HasPrefix(text, "CROSSSLOT") || strings.Contains(text, "same slot")
}

// manner is how a call is sent.
type manner struct {
	whole  bool // with the script's source; else by its digest
	routed bool // to where a redirection leads; else directly to the node
	alone  bool // with the lock as the only key; else with all its keys
}

// after returns the manner in which a call that was sent in this manner is sent again after a reply of that meaning.
// again is false if the call is not sent again. Each manner is tried once, so the retries end. A call with the lock as
// the only key is routed immediately if the client follows redirections.
func (how manner) after(reply meaning, clientFollows bool) (next manner, again bool) {
	next = how
	switch reply {
	case isUnknownScript:
		next.whole = true
	case isElsewhere:
		next.routed = true
	case isMigrating:
		if !how.alone {
			next.alone, next.routed = true, clientFollows
		}
	}
	return next, next != how
}

// maskForeignEnd wraps an error that matches the end of a context, if the context of the request has not ended, so that
// it no longer matches. The error comes from a dial, which has a time limit of its own, and which rueidis shares
// between callers.
func maskForeignEnd(ctx context.Context, r rueidis.RedisResult) rueidis.RedisResult {
	err := r.NonRedisError()
	if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return r
	}
	return rueidis.NewErrorResult(&linkError{err})
}

// linkError is a failure to connect. It has the text and the types of its cause.
type linkError struct{ cause error }

func (e *linkError) Error() string { return "not connected: " + e.cause.Error() }

func (e *linkError) As(target any) bool { return errors.As(e.cause, target) }

// nameTimeout converts the error of a connection without a reply in time into a NoReply.
func (m *Master) nameTimeout(r rueidis.RedisResult, sent clock.Instant) rueidis.RedisResult {
	err := r.NonRedisError()
	if err == nil || DidNotRun(err) || !errors.Is(err, os.ErrDeadlineExceeded) {
		return r
	}
	return rueidis.NewErrorResult(&NoReply{After: m.cfg.Clock.Now().Mono - sent.Mono})
}
