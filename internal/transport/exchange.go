package transport

import (
	"context"

	"github.com/redis/rueidis"
)

// send sends the batch, and once more what has not run: what another server has to answer, and then, whole, what
// the server does not know.
func (p *pipeline) send(ctx context.Context, batch []Call) {
	ctx, cancel := context.WithTimeout(ctx, p.n.m.cfg.Patience)
	defer cancel()
	moved, unknown := p.exchange(ctx, batch, manner{})
	if len(moved) > 0 {
		_, more := p.exchange(ctx, moved, manner{routed: true})
		unknown = append(unknown, more...)
	}
	if len(unknown) > 0 {
		moved, _ = p.exchange(ctx, unknown, manner{whole: true})
		p.exchange(ctx, moved, manner{whole: true, routed: true})
	}
}

// manner is how calls are sent: each script whole, or by its digest; routed by the client, or straight to the node.
type manner struct{ whole, routed bool }

// exchange sends the calls together and ends each with its reply, but for those that have not run: another server has
// to answer them, or the server does not know their script. A server that does not even know a script that was sent
// whole has refused it.
func (p *pipeline) exchange(ctx context.Context, batch []Call, how manner) (moved, unknown []Call) {
	if len(batch) == 0 {
		return nil, nil
	}
	m := p.n.m
	sent, dials := m.cfg.Clock.Now(), m.Dials()
	for i, r := range p.converse(ctx, batch, how, dials) {
		switch {
		case !how.whole && unknownScript(r):
			unknown = append(unknown, batch[i])
			continue
		case !how.routed && p.n.redirects(r) && p != p.n.replicated: // which is answered by the refusal
			moved = append(moved, batch[i])
			continue
		case ctx.Err() != nil && r.NonRedisError() != nil:
			r = rueidis.NewErrorResult(&NoReply{After: m.cfg.Clock.Now().Mono - sent.Mono})
		}
		r = m.nameTimeout(maskForeignEnd(ctx, r), sent)
		if err := lackOfAnswer(r); err != nil {
			p.n.unanswered(err)
		} else {
			p.n.answered()
		}
		batch[i].Done(m.sameConnection(dials, r), sent)
	}
	return moved, unknown
}

func (p *pipeline) converse(ctx context.Context, batch []Call, how manner, dials uint64) []rueidis.RedisResult {
	client, as := p.n.client, (*Script).byDigest
	if how.routed {
		client = p.n.m.client
		defer p.n.elsewhere()
	}
	if how.whole {
		as = (*Script).whole
	}
	b := client.B()
	commands := make(rueidis.Commands, len(batch))
	for i, c := range batch {
		commands[i] = as(c.Script, b, c.Keys, p.n.m.current(c.Args, dials))
	}
	if p == p.n.replicated {
		return p.converseReplicated(withoutDeadline{ctx}, client, commands)
	}
	return client.DoMulti(withoutDeadline{ctx}, commands...)
}
