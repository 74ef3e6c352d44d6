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

// converseReplicated sends the commands, and WAIT behind them over the same connection. Where the client decides which
// server answers, a redirection would part the two, so there each call is sent apart, and none is redirected.
func (p *pipeline) converseReplicated(
	ctx context.Context, client rueidis.Client, commands rueidis.Commands,
) (results []rueidis.RedisResult) {
	if p.n.direct || !p.n.m.cluster() {
		return p.confirmed(client.DoMulti(ctx, append(commands, p.wait(client))...))
	}
	for _, command := range commands {
		_ = client.Dedicated(func(c rueidis.DedicatedClient) error {
			results = append(results, p.confirmed(c.DoMulti(ctx, command, p.wait(client)))...)
			return nil
		})
	}
	return results
}

func (p *pipeline) wait(client rueidis.Client) rueidis.Completed {
	cfg := p.n.m.cfg
	return client.B().Wait().Numreplicas(int64(cfg.Replicas)).Timeout(cfg.ReplicaTimeout.Milliseconds()).Build()
}

// confirmed takes the answer of WAIT off the results. Where too few replicas have confirmed, calls that have run are
// answered so.
func (p *pipeline) confirmed(results []rueidis.RedisResult) []rueidis.RedisResult {
	cfg, last := p.n.m.cfg, len(results)-1
	got, err := results[last].AsInt64()
	results = results[:last]
	if err == nil && got >= int64(cfg.Replicas) {
		return results
	}
	for i, r := range results {
		if r.Error() == nil {
			results[i] = rueidis.NewErrorResult(&Unreplicated{
				Need: cfg.Replicas, Got: int(got), After: cfg.ReplicaTimeout, Err: err, Reply: r,
			})
		}
	}
	return results
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
