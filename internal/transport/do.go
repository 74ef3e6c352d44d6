package transport

import (
	"context"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Do runs one script and waits for its reply, at the longest until ctx ends. The first key selects the server. sent is
// the time just before the request was sent. A server that has just failed is not tried again within a few
// milliseconds: the result is then the failure.
func (m *Master) Do(
	ctx context.Context, s *Script, keys []string, vote wire.Vote, args []string,
) (r rueidis.RedisResult, sent clock.Instant) {
	n := m.At(keys[0])
	sent = m.cfg.Clock.Now()
	if _, cause := n.health.urgent(sent.Mono); cause != nil {
		return rueidis.NewErrorResult(m.notSent(cause)), sent
	}
	if n.connected(sent) {
		r, sent = n.send(ctx, s, keys, vote, args)
	} else {
		r, sent = n.sendAsync(ctx, s, keys, vote, args)
	}
	n.note(ctx, r)
	return r, sent
}

// recently is the maximum age of the last answer for which a connection is assumed to be open. If it has broken since,
// a caller may have to wait for one dial.
const recently = 100 * time.Millisecond

// warm is the number of consecutive answers after which each of a client's connections has almost certainly been
// dialled: with rueidis' default of four connections, one is missed once in 25 million times.
const warm = 64

func (n *Node) connected(now clock.Instant) bool {
	return (n.m.tuned != nil || n.answers.Load() >= warm) && n.clock.answeredWithin(recently, now)
}

// note updates the health of the server. The end of the caller's own context says nothing about the server.
func (n *Node) note(ctx context.Context, r rueidis.RedisResult) {
	err := r.NonRedisError()
	switch {
	case err == nil:
		n.answers.Add(1)
		n.answered()
	case ctx.Err() == nil:
		n.unanswered(err)
	default:
		n.unanswered(nil)
	}
}

// sendAsync returns when ctx ends, while the call itself, and the dial that it may need, continue.
func (n *Node) sendAsync(
	ctx context.Context, s *Script, keys []string, vote wire.Vote, args []string,
) (rueidis.RedisResult, clock.Instant) {
	type answer struct {
		r    rueidis.RedisResult
		sent clock.Instant
	}
	cfg := n.m.cfg
	began := cfg.Clock.Now()
	reply := make(chan answer, 1)
	ownKeys, ownArgs := slices.Clone(keys), slices.Clone(args)
	call := func() {
		r, sent := n.send(withValues{cfg.Life, ctx}, s, ownKeys, vote, ownArgs)
		reply <- answer{r, sent}
	}
	if !cfg.Spawn(call) {
		return n.send(ctx, s, keys, vote, args) // the engine is ending
	}
	slow := time.NewTimer(cfg.SlowCallAfter)
	defer slow.Stop()
	for {
		select {
		case a := <-reply:
			return a.r, a.sent
		case <-ctx.Done():
			return rueidis.NewErrorResult(ctx.Err()), began
		case <-slow.C:
			cfg.OnSlowCall(n.m, n, &NoReply{After: cfg.SlowCallAfter})
		}
	}
}

// withValues ends with one context and has the values of another.
type withValues struct {
	context.Context
	values context.Context
}

func (c withValues) Value(key any) any { return c.values.Value(key) }

// send returns the reply, and the time just before the answered request was sent.
func (n *Node) send(
	ctx context.Context, s *Script, keys []string, vote wire.Vote, args []string,
) (r rueidis.RedisResult, sent clock.Instant) {
	if _, dated := ctx.Deadline(); dated {
		ctx = withoutDeadline{ctx}
	}
	mode := sendMode{}
	for then := resend; then == resend; {
		client := n.client
		if mode.routed {
			client = n.m.client
		}
		sent = n.m.cfg.Clock.Now()
		r = client.Do(ctx, s.command(client.B(), mode, keys, vote, args))
		if mode.routed {
			n.answeredByOther()
		}
		mode, then = n.next(mode, r, true)
	}
	return n.nameFailure(ctx, r, sent), sent
}
