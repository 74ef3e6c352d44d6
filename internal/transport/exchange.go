package transport

import (
	"context"
	"slices"

	"github.com/redis/rueidis"
)

// send sends the batch, and once more what has not run: what another server has to answer, then, with the lock named
// alone, what is on its way to another server, and then, whole, what the server does not know.
func (p *pipeline) send(ctx context.Context, batch []Call) {
	ctx, cancel := context.WithTimeout(ctx, p.n.m.cfg.Patience)
	defer cancel()
	if unknown := p.sendEverywhere(ctx, batch, manner{}); len(unknown) > 0 {
		p.sendEverywhere(ctx, unknown, manner{whole: true})
	}
}

func (p *pipeline) sendEverywhere(ctx context.Context, batch []Call, how manner) (unknown []Call) {
	if p == p.n.replicated {
		return p.sendReplicated(ctx, batch, how)
	}
	here := p.exchange(ctx, batch, how)
	how.routed = true
	there := p.exchange(ctx, here.moved, how)
	how.alone = true
	between := p.exchange(ctx, append(here.moving, there.moving...), how)
	return slices.Concat(here.unknown, there.unknown, between.unknown)
}

// manner is how calls are sent: each script whole, or by its digest; routed by the client, or straight to the node;
// with all keys of its lock, or with the lock alone.
type manner struct{ whole, routed, alone bool }

// notRun are calls that have to be sent in another manner: another server has to answer them, their lock is on its way
// to another server, or the server does not know their script.
type notRun struct{ moved, moving, unknown []Call }

// exchange sends the calls together and ends each with its reply, but for those that have not run. A server that does
// not even know a script that was sent whole has refused it.
func (p *pipeline) exchange(ctx context.Context, batch []Call, how manner) (rest notRun) {
	if len(batch) == 0 {
		return rest
	}
	m := p.n.m
	sent, dials := m.cfg.Clock.Now(), m.Dials()
	for i, r := range p.converse(ctx, batch, how, dials) {
		switch {
		case !how.whole && unknownScript(r):
			rest.unknown = append(rest.unknown, batch[i])
			continue
		case !how.routed && p.n.redirects(r):
			rest.moved = append(rest.moved, batch[i].towards(r))
			continue
		case !how.alone && m.isMoving(r):
			rest.moving = append(rest.moving, batch[i])
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
	return rest
}

func (p *pipeline) converse(ctx context.Context, batch []Call, how manner, dials uint64) []rueidis.RedisResult {
	if p == p.n.replicated {
		return p.converseReplicated(withoutDeadline{ctx}, batch, how, dials)
	}
	client := p.n.client
	if how.routed {
		client = p.n.m.client
		defer p.n.elsewhere()
	}
	return client.DoMulti(withoutDeadline{ctx}, p.commands(client, batch, how, dials)...)
}

func (p *pipeline) commands(client rueidis.Client, batch []Call, how manner, dials uint64) rueidis.Commands {
	b := client.B()
	commands := make(rueidis.Commands, len(batch), len(batch)+1)
	for i, c := range batch {
		keys := c.Keys
		if how.alone {
			keys = keys[:1]
		}
		commands[i] = c.Script.as(form(how.whole), b, keys, p.n.m.current(c.Args, dials))
	}
	return commands
}
