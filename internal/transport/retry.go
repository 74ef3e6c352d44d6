package transport

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
)

// sendMode is how a call is sent. The zero value is the first attempt.
type sendMode struct {
	source   bool   // with the script's source; else by its digest
	lockOnly bool   // with the lock as the only key; else with all its keys
	routed   bool   // to the server that has the slot; else to the node
	to       string // that server; "" if the client finds it
	asking   bool   // that server has the slot by ASK only
}

// step is what follows from a reply.
type step int

const (
	deliver step = iota // the reply is the caller's: the script ran, was refused, or may have run
	resend              // the call did not run: send it in another mode
	split               // the call did not run: send it as calls of one lock each; a call of one lock is delivered
)

// next decides what follows from a reply to a call of this node, whatever sent it: a caller, the pipeline, or the
// pipeline of replicated calls. Each mode is tried once, so the retries end. If the reply indicates a change of the
// servers of a Cluster, next requests a new slot map.
//
// clientFollows is false if the sender has to name the server of a redirection itself. It is true if the client follows
// redirections: a call with the lock as the only key is then routed at once.
//
// Every step except deliver implies that the call did not run, with one exception: a call on a client that has given up
// its server may have run. To send it again is safe, because every script may run twice.
func (n *Node) next(mode sendMode, r rueidis.RedisResult, clientFollows bool) (sendMode, step) {
	err := r.Error()
	if err == nil {
		return mode, deliver
	}
	next := mode
	switch kind := kindOf(err); {
	case n.direct && errors.Is(err, rueidis.ErrClosing):
		n.stale.Store(true)
		n.m.suspect()
		next.routed = true
	case kind == unknownScript:
		next.source = true
	case kind == crossSlot:
		return mode, split
	case kind == migrating && !n.m.Standalone():
		if !mode.lockOnly {
			next.lockOnly, next.routed = true, clientFollows
		}
	case !n.direct: // the node's client follows redirections itself
	case kind == moved || kind == ask:
		if kind == moved {
			n.m.suspect()
		}
		if !mode.routed {
			next.routed = true
			if !clientFollows {
				next.to, next.asking = target(err)
			}
		}
	case kind == clusterDown:
		n.m.suspect()
	}
	if next == mode {
		return mode, deliver
	}
	return next, resend
}

// target returns the server that a redirection names.
func target(redirection error) (addr string, asking bool) {
	refusal, _ := refusalOf(redirection)
	if addr, moved := refusal.IsMoved(); moved {
		return addr, false
	}
	return refusal.IsAsk()
}

// nameFailure converts the error of a call that got no reply into one that says so. A connection without a reply in
// time becomes a NoReply. An error that matches the end of a context, while the context of the request has not ended,
// is wrapped so that it no longer matches: it comes from a dial, which has a time limit of its own, and which rueidis
// shares between callers.
func (n *Node) nameFailure(ctx context.Context, r rueidis.RedisResult, sent clock.Instant) rueidis.RedisResult {
	err := r.NonRedisError()
	switch {
	case err == nil:
		return r
	case ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		return rueidis.NewErrorResult(&linkError{err, n.m.cfg.Clock.Now().Mono - sent.Mono})
	case errors.Is(err, os.ErrDeadlineExceeded) && !DidNotRun(err):
		return rueidis.NewErrorResult(&NoReply{After: n.m.cfg.Clock.Now().Mono - sent.Mono})
	default:
		return r
	}
}

// linkError is a failure to connect. It has the types of its cause, and its text unless that names only the end of the
// client's own time limit.
type linkError struct {
	cause error
	after time.Duration
}

func (e *linkError) Error() string {
	if _, dialling := errors.AsType[*net.OpError](e.cause); !dialling && errors.Is(e.cause, context.DeadlineExceeded) {
		return "not connected: dial timed out after " + e.after.Round(time.Millisecond).String()
	}
	return "not connected: " + e.cause.Error()
}

func (e *linkError) As(target any) bool { return errors.As(e.cause, target) }
