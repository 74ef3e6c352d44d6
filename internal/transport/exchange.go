package transport

import (
	"context"

	"github.com/redis/rueidis"
)

// send sends the batch, and sends the calls that did not run once more in another manner.
func (p *pipeline) send(ctx context.Context, batch []Call) {
	ctx, cancel := context.WithTimeout(ctx, p.n.m.cfg.Patience)
	defer cancel()
	if !p.hasCaughtUp(ctx) {
		p.refuse(batch)
		return
	}
	for unsent := (parcels{{calls: batch}}); len(unsent) > 0; {
		var again parcels
		for _, parcel := range unsent {
			p.exchange(ctx, parcel, &again)
		}
		unsent = again
	}
}

// parcel is a group of calls that are sent together, in one manner.
type parcel struct {
	how   manner
	calls []Call
}

// parcels has one parcel for each manner.
type parcels []parcel

func (all *parcels) add(how manner, calls ...Call) {
	for i, parcel := range *all {
		if parcel.how == how {
			(*all)[i].calls = append(parcel.calls, calls...)
			return
		}
	}
	*all = append(*all, parcel{how, calls})
}

// exchange sends the calls together and completes each with its reply. Calls that have to be sent again are added to
// again.
func (p *pipeline) exchange(ctx context.Context, now parcel, again *parcels) {
	m, batch := p.n.m, now.calls
	sent, dials := m.cfg.Clock.Now(), m.Dials()
	for i, r := range p.converse(ctx, batch, now.how, dials) {
		meaning := p.n.meaning(r)
		if meaning == isCrossSlot && batch[i].split != nil {
			p.n.separate(r.Error())
			again.add(now.how, batch[i].split()...)
			continue
		}
		if how, differs := now.how.after(meaning, p != p.n.replicated); differs {
			again.add(how, batch[i].towards(r))
			continue
		}
		if ctx.Err() != nil && r.NonRedisError() != nil {
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
		commands[i] = c.Script.command(b, how.whole, keys, p.n.m.current(c.Args, dials))
	}
	return commands
}
