package transport

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// Do runs one script and waits for its reply, at the longest until ctx ends. With a limit it does not end with ctx,
// which it needs for its values then, but at the limit, with a NoReply. The first key selects the server. sent is the
// time just before the request was sent. A server that has just failed is not tried again within a few milliseconds:
// the result is then the failure.
func (m *Master) Do(
	ctx context.Context, limit time.Duration, s *Script, keys []string, vote wire.Vote, args []string,
) (r rueidis.RedisResult, sent clock.Instant) {
	n, now := m.At(keys[0]), m.cfg.Clock.Now()
	if _, cause := n.urgent(now.Mono); cause != nil {
		return rueidis.NewErrorResult(m.notSent(cause)), now
	}
	if (n.m.tuned || n.answers.Load() >= warm) && n.clock.answeredWithin(recently, now) {
		r, sent = n.sendAtOnce(ctx, limit, now, s, keys, vote, args)
	} else {
		r, sent = n.sendFromQueue(ctx, limit, s, keys, vote, args)
	}
	switch err := r.NonRedisError(); {
	case err == nil:
		n.answers.Add(1)
		n.answered()
	case limit > 0 && errors.Is(err, context.DeadlineExceeded):
		n.unanswered(nil) // a limit of the caller's says nothing about the server
		r = rueidis.NewErrorResult(&NoReply{After: m.cfg.Clock.Now().Mono - sent.Mono})
	case (limit > 0 || ctx.Err() == nil) && n.m.cfg.Life.Err() == nil:
		n.unanswered(err)
	default: // nor does the end of its context, or of the engine
		n.unanswered(nil)
	}
	return r, sent
}

// groups reports whether so many calls may be members of groups now.
func (n *Node) groups(calls int) bool {
	return !n.separated.Load() && (n.ungrouped.Load() <= 0 || n.ungrouped.Add(-int64(calls)) < 0)
}

// sendAtOnce sends a call on the caller's goroutine, or together with those of other callers.
func (n *Node) sendAtOnce(
	ctx context.Context, limit time.Duration, now clock.Instant,
	s *Script, keys []string, vote wire.Vote, args []string,
) (rueidis.RedisResult, clock.Instant) {
	defer n.inFlight.Add(-1)
	if n.inFlight.Add(1) >= groupLeast && s.joins(args) && n.groups(1) {
		return n.pipeline.gather(ctx, limit, now, s, keys, vote, args)
	}
	if limit == 0 {
		within, stop := n.untilTheEnd(ctx)
		defer stop()
		return n.send(within, s, keys, vote, args)
	}
	timed := n.m.Timed(ctx, limit)
	defer timed.Stop()
	return n.send(timed, s, keys, vote, args)
}

// untilTheEnd returns ctx, to end with the engine too, where nothing else ends a call to a server that hangs soon: a
// client from Dial closes its connection. Call stop once the call is over.
func (n *Node) untilTheEnd(ctx context.Context) (within context.Context, stop func()) {
	life := n.m.cfg.Life
	if n.m.tuned {
		return ctx, func() {}
	}
	if ctx.Done() == nil {
		return withValues{life, ctx}, func() {}
	}
	within, cancel := context.WithCancel(ctx)
	unwatch := context.AfterFunc(life, cancel)
	return within, func() {
		unwatch()
		cancel()
	}
}

// sendFromQueue sends a call with the next batch, or alone if it has no vote.
func (n *Node) sendFromQueue(
	ctx context.Context, limit time.Duration, s *Script, keys []string, vote wire.Vote, args []string,
) (rueidis.RedisResult, clock.Instant) {
	if limit > 0 {
		timed := n.m.Timed(ctx, limit)
		defer timed.Stop()
		ctx = timed
	}
	if s.votes {
		return n.queue(ctx, s, keys, vote, args)
	}
	return n.look(ctx, s, keys, vote, args)
}

// recently is the maximum age of the last answer for which a connection is assumed to be open. If it has broken since,
// a caller may have to wait for one dial.
const recently = 100 * time.Millisecond

// warm is the number of consecutive answers after which each of a client's connections has almost certainly been
// dialled: with rueidis' default of four connections, one is missed once in 25 million times.
const warm = 64

// look sends a call without a vote on a goroutine of its own, and returns when ctx ends. It does not share a dial of
// the pipeline, which may have failed just before the link came back: what waits for the marker must not wait longer
// for that. There is one look at a master at a time, and those of operators.
func (n *Node) look(
	ctx context.Context, s *Script, keys []string, vote wire.Vote, args []string,
) (rueidis.RedisResult, clock.Instant) {
	cfg := n.m.cfg
	began := cfg.Clock.Now()
	reply := make(answers, 1)
	ownKeys, ownArgs := slices.Clone(keys), slices.Clone(args)
	if !cfg.Spawn(func() { reply.Receive(n.send(withValues{cfg.Life, ctx}, s, ownKeys, vote, ownArgs)) }) {
		return n.send(ctx, s, keys, vote, args) // the engine is ending
	}
	return n.await(ctx, reply, began, func() error { return ctx.Err() })
}

// withValues ends with one context and has the values of another.
type withValues struct {
	context.Context
	values context.Context
}

// Value returns nil where the caller's context panics, as that of a request that is over may: the caller may have left.
func (c withValues) Value(key any) (value any) {
	if key == (dialsEnd{}) {
		return c.Context.Value(key)
	}
	defer func() { _ = recover() }()
	return c.values.Value(key)
}

// queue sends the call with the next batch and returns when ctx ends, or the engine. A call that has not left by then
// is never sent, so callers that give up leave nothing behind: neither a goroutine nor a request.
func (n *Node) queue(
	ctx context.Context, s *Script, keys []string, vote wire.Vote, args []string,
) (rueidis.RedisResult, clock.Instant) {
	cfg := n.m.cfg
	began := cfg.Clock.Now()
	reply := make(answers, 1)
	n.m.Post(Call{
		Script: s, Keys: slices.Clone(keys), Vote: vote, Args: slices.Clone(args), To: reply, Urgent: true,
	})
	return n.await(ctx, reply, began, func() error { return n.gaveUp(ctx.Err(), keys[0], reply) })
}

// gaveUp withdraws a call that is not awaited any longer, and returns the cause, or that the call had not left.
func (n *Node) gaveUp(cause error, key string, reply answers) error {
	if n.m.withdraw(key, func(c *Call) bool { return c.To == Receiver(reply) }) {
		return &NotSent{Cause: cause}
	}
	return cause
}

// await returns the answer, or why it is not awaited any longer, which is that of gaveUp when ctx ends. The end of the
// engine is not an end of the caller's context.
func (n *Node) await(
	ctx context.Context, reply answers, began clock.Instant, gaveUp func() error,
) (rueidis.RedisResult, clock.Instant) {
	cfg := n.m.cfg
	slow := time.NewTimer(cfg.SlowCallAfter)
	defer slow.Stop()
	for {
		select {
		case a := <-reply:
			return a.r, a.sent
		case <-cfg.Life.Done():
			return rueidis.NewErrorResult(&NoReply{After: cfg.Clock.Now().Mono - began.Mono}), began
		case <-ctx.Done():
			return rueidis.NewErrorResult(gaveUp()), began
		case <-slow.C:
			cfg.OnSlowCall(n.m, n, &NoReply{After: cfg.SlowCallAfter})
		}
	}
}

type answers chan answer

type answer struct {
	r    rueidis.RedisResult
	sent clock.Instant
}

// Receive does not block: the channel has room.
func (a answers) Receive(r rueidis.RedisResult, sent clock.Instant) { a <- answer{r, sent} }

// send returns the reply, and the time just before the answered request was sent.
func (n *Node) send(
	ctx context.Context, s *Script, keys []string, vote wire.Vote, args []string,
) (r rueidis.RedisResult, sent clock.Instant) {
	if _, dated := ctx.Deadline(); dated {
		ctx = withoutDeadline{ctx}
	}
	for mode := (sendMode{}); ; {
		client := n.client
		if mode.routed {
			client = n.m.client
		}
		sent = n.m.cfg.Clock.Now()
		r = client.Do(ctx, s.command(client.B(), mode, n.declared(s, mode, keys), vote, args))
		if mode.routed {
			n.answeredByOther()
		}
		err := r.Error()
		if err == nil {
			return r, sent
		}
		next, then := n.next(mode, err, true)
		if then != resend {
			return n.nameFailure(ctx, r, sent), sent
		}
		mode = next
	}
}

// Script is a program to send: by its digest, or as its source if the server does not know it.
type Script struct {
	name   scripts.Name
	salt   string
	votes  bool    // one of its arguments is a vote
	first  bool    // it is sent before others
	group  *Script // whose members its calls may be; nil if they may not
	digest func() string
}

// NewScript returns the script of that name. A salt is added as a comment. Only clients that know the salt can have
// loaded a script with that digest, so the first of these clients to call detects a server that lost its data, or that
// is another process.
func NewScript(name scripts.Name, salt string) *Script {
	s := &Script{name: name, salt: salt, votes: name != scripts.Marker && name != scripts.Inspect}
	s.first = !s.votes || name == scripts.Release
	if name == scripts.Acquire {
		s.group = NewScript(scripts.Group, salt)
	}
	s.digest = sync.OnceValue(func() string { return scripts.Digest(s.source()) })
	return s
}

// Grouped returns the script with calls that may be members of a group. The arguments of a release do not show that it
// is of a write hold without a named owner and a block; its caller knows.
func (s *Script) Grouped() *Script {
	grouped := *s
	grouped.group = NewScript(scripts.Group, s.salt)
	return &grouped
}

// Alone returns the script with calls that are members of no group.
func (s *Script) Alone() *Script {
	alone := *s
	alone.group = nil
	return &alone
}

// source builds the text when it is needed, which is rare: the process keeps the text without salt once, for all
// lockers.
func (s *Script) source() string {
	text := scripts.Source(s.name)
	if s.salt != "" {
		text += "\n-- " + s.salt + "\n"
	}
	return text
}

// command returns the command that calls the script, by its source or by its digest. Keys and arguments on a caller's
// stack stay there.
//
// The source is for a server that does not know the script. The server may have been restarted, so one of several
// masters has to compare its run id with the run id in the marker.
func (s *Script) command(
	b rueidis.Builder, mode sendMode, keys []string, vote wire.Vote, args []string,
) rueidis.Completed {
	before, after := args, []string(nil)
	if s.votes {
		at := wire.VoteAt(s.name)
		before, after = args[:at], args[at:]
	}
	votes := s.votes && (len(after) > 0 || len(before) == 0 || vote.Quarantine != "")
	if mode.source {
		vote.Check = true
		call := b.Eval().Script(s.source()).Numkeys(int64(len(keys))).Key(keys...).Arg(before...)
		if votes {
			call = call.Arg(vote.Arg()).Arg(after...)
		}
		return call.Build()
	}
	call := b.Evalsha().Sha1(s.digest()).Numkeys(int64(len(keys))).Key(keys...).Arg(before...)
	if votes {
		call = call.Arg(vote.Arg()).Arg(after...)
	}
	return call.Build()
}

// declared returns the keys that a call names: the lock. In a Cluster it names all keys of the lock that the script may
// touch, or the server would stop the script at a key that has moved. While they move, it names the lock twice.
func (n *Node) declared(s *Script, mode sendMode, keys []string) []string {
	if !n.m.cluster || s.name == scripts.Marker {
		return keys
	}
	all := wire.AllOf(keys[0])
	switch {
	case mode.lockOnly:
		return []string{keys[0], keys[0]}
	case s.name == scripts.Renew:
		all = all[:2]
	}
	return append(all, keys[1:]...)
}

// withoutDeadline hides a context's deadline and keeps its end.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// sendMode is how a call is sent. The zero value is the first attempt.
type sendMode struct {
	source   bool   // with the script's source; else by its digest
	lockOnly bool   // with the lock as the only key, in a Cluster
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

// next decides what follows from the error of a call of this node, whatever sent it: a caller, the pipeline, or the
// pipeline of replicated calls. Each mode is tried once, so the retries end. If the reply indicates a change of the
// servers of a Cluster, next requests a new slot map. If it is that of a replica, the client connects anew.
//
// clientFollows is false if the sender has to name the server of a redirection itself. It is true if the client follows
// redirections: a call with the lock as the only key is then routed at once.
//
// Every step except deliver implies that the call did not run, with one exception: a call on a client that has given up
// its server may have run. To send it again is safe, because every script may run twice.
func (n *Node) next(mode sendMode, err error, clientFollows bool) (sendMode, step) {
	next := mode
	LeaveReplica(n.m.client, err)
	switch kind := kindOf(err); {
	case n.direct && errors.Is(err, rueidis.ErrClosing):
		n.stale.Store(true)
		n.m.suspect()
		next.routed = true
	case kind == unknownScript:
		next.source = true
	case kind == crossSlot:
		return mode, split
	case kind == migrating && !n.m.Standalone:
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
	case n.isOther(err):
		return rueidis.NewErrorResult(&otherError{err})
	case ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		return rueidis.NewErrorResult(&linkError{err, n.m.cfg.Clock.Now().Mono - sent.Mono})
	case errors.Is(err, os.ErrDeadlineExceeded) && !DidNotRun(err):
		return rueidis.NewErrorResult(&NoReply{After: n.m.cfg.Clock.Now().Mono - sent.Mono})
	default:
		return r
	}
}

// isOther reports whether a connection to another server than this node failed. The client of a Cluster tries
// the servers that it knows, in any order, for a node whose own connection has ended.
func (n *Node) isOther(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "dial" || op.Addr == nil || n.addr == "" {
		return false
	}
	host, _, _ := net.SplitHostPort(n.addr)
	return net.ParseIP(host) != nil && op.Addr.String() != n.addr
}

// otherError is a failure to connect to another server of the Cluster than the one that is named beside the error. It
// is all that its cause is but the end of a context: a dial has a time limit of its own.
type otherError struct{ cause error }

func (e *otherError) Error() string { return "asked by way of another server: " + e.cause.Error() }

func (e *otherError) As(target any) bool { return errors.As(e.cause, target) }

func (e *otherError) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.cause, target)
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
