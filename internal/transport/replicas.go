package transport

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// A call whose answer counts only with replicas is sent over a separate connection, followed by WAIT: WAIT covers the
// writes of the connection on which it is sent, and blocks the commands after it on that connection. Such calls are
// collected while one batch is in flight, and one WAIT confirms the next batch. So a slow replica costs its delay once
// for all of them, and costs nothing for calls that need no replicas.
//
// Missing replicas cost that delay once. After a batch that they have not confirmed, the next batch is not sent until a
// short WAIT shows that they have caught up with it. A master without its replicas then counts as down. In a quorum, a
// master that answered late would be worse, because split votes wait for its answer.

// Unreplicated is the answer to a call that has run, but that fewer replicas than needed have confirmed in time. The
// replicas may have the write, or may still get it.
type Unreplicated struct {
	Need, Got int
	After     time.Duration       // how long the replicas had to confirm
	Err       error               // why the server did not report the replicas; nil if they were too few
	Reply     rueidis.RedisResult // to the call itself
}

func (e *Unreplicated) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("number of replicas unknown, %d required: %v", e.Need, e.Err)
	}
	return fmt.Sprintf("%d of %d required replicas confirmed it in %v", e.Got, e.Need, e.After)
}

// Prepare opens the connection for replicated calls, at the latest when ctx ends. If the first of these calls opened
// it, one of several masters would not vote, because its marker was not read over the current connection.
func (m *Master) Prepare(ctx context.Context) {
	if m.cfg.Replicas > 0 {
		m.client.Do(withoutDeadline{ctx}, m.client.B().Wait().Numreplicas(0).Timeout(1).Build())
	}
}

// hasCaughtUp reports whether the replicas have the writes of the last batch, if they had not confirmed them in time.
// It sends WAIT once more with a short timeout, which an idle server extends to a tenth of a second. If the server does
// not report, the next batch finds the reason.
func (s *sender) hasCaughtUp(ctx context.Context) bool {
	if s.lag == nil {
		return true
	}
	client, need := s.p.n.client, int64(s.lag.Need)
	got, err := client.Do(ctx, client.B().Wait().Numreplicas(need).Timeout(1).Build()).AsInt64()
	if err == nil && got < need {
		return false
	}
	s.lag = nil
	return true
}

// refuse completes calls that are not sent because of the replicas.
func (s *sender) refuse(batch []Call) {
	now := s.p.n.m.cfg.Clock.Now()
	for _, c := range batch {
		c.To.Receive(rueidis.NewErrorResult(&NotSent{Cause: s.lag}), now)
	}
}

// roundTripReplicated sends the calls, followed by WAIT on the same connection. Calls that another server may have to
// answer are sent one by one, each with its own WAIT.
func (s *sender) roundTripReplicated(
	ctx context.Context, batch []Call, mode sendMode, dials uint64,
) (results []rueidis.RedisResult) {
	if client := s.p.n.client; !mode.routed && !mode.lockOnly && (s.p.n.direct || !s.p.n.m.cluster()) {
		results, s.lag = s.confirmed(client.DoMulti(ctx, append(s.commands(client, batch, mode, dials), s.wait(client))...))
		return results
	}
	for _, c := range batch {
		results = append(results, s.roundTripOfOne(ctx, c, mode, dials))
	}
	return results
}

func (s *sender) roundTripOfOne(ctx context.Context, c Call, mode sendMode, dials uint64) (r rueidis.RedisResult) {
	first := func(results []rueidis.RedisResult) rueidis.RedisResult {
		results, _ = s.confirmed(results)
		return results[0]
	}
	client := s.p.n.client
	if mode.to != "" {
		defer s.p.n.answeredByOther()
		if client = s.p.n.m.client.Nodes()[mode.to]; client == nil {
			s.p.n.m.suspect()
			return rueidis.NewErrorResult(&NotSent{Cause: fmt.Errorf("not connected to %s, which has the slot", mode.to)})
		}
	}
	commands := append(s.commands(client, []Call{c}, mode, dials), s.wait(client))
	switch {
	case mode.asking:
		asking := client.B().Arbitrary("ASKING").Build()
		return first(client.DoMulti(ctx, append(rueidis.Commands{asking}, commands...)...)[1:])
	case mode.to == "" && !s.p.n.direct && s.p.n.m.cluster():
		// The client decides which server answers, and a redirection would separate the call from its WAIT. A dedicated
		// client follows no redirection.
		_ = client.Dedicated(func(dedicated rueidis.DedicatedClient) error {
			r = first(dedicated.DoMulti(ctx, commands...))
			return nil
		})
		return r
	default:
		return first(client.DoMulti(ctx, commands...))
	}
}

func (s *sender) wait(client rueidis.Client) rueidis.Completed {
	cfg := s.p.n.m.cfg
	return client.B().Wait().Numreplicas(int64(cfg.Replicas)).Timeout(cfg.ReplicaTimeout.Milliseconds()).Build()
}

// confirmed removes the reply to WAIT from the results. If too few replicas have confirmed, it replaces the replies of
// calls that have run by Unreplicated, and returns lag, which has no call's reply.
func (s *sender) confirmed(results []rueidis.RedisResult) (replies []rueidis.RedisResult, lag *Unreplicated) {
	cfg, last := s.p.n.m.cfg, len(results)-1
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
