package transport

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// A call whose answer counts only once its replicas have what it wrote goes out over a connection of its own, with WAIT
// behind it: WAIT speaks of the connection that it is sent over, and holds up whatever is sent after it there. Such
// calls gather while one batch is on its way, and one WAIT confirms the next batch, so a slow replica costs its time
// once for all of them, and the calls that need no replicas nothing.
//
// Replicas that are away cost that time once. After a batch that they have not confirmed the next ones are not sent
// before they have caught up with it, which a short WAIT tells. A master whose replicas are away is then as good as
// down. Over a quorum one that answered late would be worse, since votes that are split wait for its answer.

// Unreplicated is the answer to a call that has run, and that fewer replicas than are needed have confirmed in time.
// They may have it, or get it yet.
type Unreplicated struct {
	Need, Got int
	After     time.Duration       // how long they were given
	Err       error               // why the server did not answer for them; nil where they were too few
	Reply     rueidis.RedisResult // to the call itself
}

func (e *Unreplicated) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("not known whether %d replicas have it: %v", e.Need, e.Err)
	}
	return fmt.Sprintf("%d of %d replicas confirmed it in %v", e.Got, e.Need, e.After)
}

// Prepare opens the connection for calls that are replicated, at the latest when ctx ends. Opened with the first of
// them, it would make one of several masters a stranger.
func (m *Master) Prepare(ctx context.Context) {
	if m.cfg.Replicas > 0 {
		m.client.Do(withoutDeadline{ctx}, m.client.B().Wait().Numreplicas(0).Timeout(1).Build())
	}
}

// hasCaughtUp reports whether the replicas have what was written last, if they had not confirmed it in time. They are
// asked once more, and given a moment: an idle server makes a tenth of a second of it. Where the server does not say,
// the batch that follows finds out why.
func (p *pipeline) hasCaughtUp(ctx context.Context) bool {
	if p.lag == nil {
		return true
	}
	client, need := p.n.client, int64(p.lag.Need)
	got, err := client.Do(withoutDeadline{ctx}, client.B().Wait().Numreplicas(need).Timeout(1).Build()).AsInt64()
	if err == nil && got < need {
		return false
	}
	p.lag = nil
	return true
}

// refuse answers calls that are not sent because of the replicas.
func (p *pipeline) refuse(batch []Call) {
	now := p.n.m.cfg.Clock.Now()
	for _, c := range batch {
		c.Done(rueidis.NewErrorResult(&NotSent{p.lag}), now)
	}
}

// towards notes where the reply leads, if it is a redirection. The client would send a call there, but not the WAIT
// behind it.
func (c Call) towards(redirection rueidis.RedisResult) Call {
	refusal, ok := refusalOf(redirection.Error())
	if !ok {
		return c
	}
	if addr, moved := refusal.IsMoved(); moved {
		c.to, c.asking = addr, false
	} else if addr, asks := refusal.IsAsk(); asks {
		c.to, c.asking = addr, true
	}
	return c
}

// converseReplicated sends the calls, and WAIT behind them over the same connection. Those that another server may have
// to answer are sent one by one, each with a WAIT of its own.
func (p *pipeline) converseReplicated(
	ctx context.Context, batch []Call, how manner, dials uint64,
) (results []rueidis.RedisResult) {
	if client := p.n.client; !how.routed && !how.alone && (p.n.direct || !p.n.m.cluster()) {
		results, p.lag = p.confirmed(client.DoMulti(ctx, append(p.commands(client, batch, how, dials), p.wait(client))...))
		return results
	}
	for _, c := range batch {
		results = append(results, p.converseApart(ctx, c, how, dials))
	}
	return results
}

func (p *pipeline) converseApart(ctx context.Context, c Call, how manner, dials uint64) (r rueidis.RedisResult) {
	first := func(results []rueidis.RedisResult) rueidis.RedisResult {
		results, _ = p.confirmed(results)
		return results[0]
	}
	client := p.n.client
	if c.to != "" {
		defer p.n.elsewhere()
		if client = p.n.m.client.Nodes()[c.to]; client == nil {
			p.n.m.suspect()
			return rueidis.NewErrorResult(&NotSent{fmt.Errorf("no connection to %s yet, which has the slot", c.to)})
		}
	}
	commands := append(p.commands(client, []Call{c}, how, dials), p.wait(client))
	switch {
	case c.asking:
		asking := client.B().Arbitrary("ASKING").Build()
		return first(client.DoMulti(ctx, append(rueidis.Commands{asking}, commands...)...)[1:])
	case c.to == "" && !p.n.direct && p.n.m.cluster():
		// The client decides which server answers, and a redirection would part the two: this one follows none.
		_ = client.Dedicated(func(dedicated rueidis.DedicatedClient) error {
			r = first(dedicated.DoMulti(ctx, commands...))
			return nil
		})
		return r
	default:
		return first(client.DoMulti(ctx, commands...))
	}
}

func (p *pipeline) wait(client rueidis.Client) rueidis.Completed {
	cfg := p.n.m.cfg
	return client.B().Wait().Numreplicas(int64(cfg.Replicas)).Timeout(cfg.ReplicaTimeout.Milliseconds()).Build()
}

// confirmed takes the answer of WAIT off the results. Where too few replicas have confirmed, calls that have run are
// answered so, and lag says so without a call's reply.
func (p *pipeline) confirmed(results []rueidis.RedisResult) (replies []rueidis.RedisResult, lag *Unreplicated) {
	cfg, last := p.n.m.cfg, len(results)-1
	got, err := results[last].AsInt64()
	results = results[:last]
	if err == nil && got >= int64(cfg.Replicas) {
		return results, nil
	}
	short := Unreplicated{Need: cfg.Replicas, Got: int(got), After: cfg.ReplicaTimeout, Err: err}
	for i, r := range results {
		if r.Error() == nil {
			its := short
			its.Reply = r
			results[i] = rueidis.NewErrorResult(&its)
		}
	}
	if err != nil {
		return results, nil
	}
	return results, &short
}

// lackOfAnswer returns why the server has not answered; nil for a refusal, and where only its replicas are too few.
func lackOfAnswer(r rueidis.RedisResult) error {
	err := r.NonRedisError()
	if short, ok := err.(*Unreplicated); ok {
		if _, refused := refusalOf(short.Err); refused {
			return nil
		}
		return short.Err
	}
	return err
}

// post hands the call to the pipeline that it belongs to.
func (n *Node) post(c Call) bool {
	if c.Replicated && n.replicated != nil {
		return n.replicated.post(c)
	}
	return n.pipeline.post(c)
}

// renew hands the renewal on: it moves a deadline, so it counts only once the replicas have it.
func (n *Node) renew(r *Renewal) bool {
	if n.replicated != nil {
		return n.replicated.renew(r)
	}
	return n.pipeline.renew(r)
}

// run sends what is posted until the node has come to its end.
func (n *Node) run() {
	if n.replicated != nil {
		n.m.cfg.Spawn(n.replicated.run)
	}
	n.pipeline.run()
}
