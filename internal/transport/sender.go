package transport

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
)

// sender is a goroutine that sends batch after batch of its pipeline, and waits for the answers to one before it takes
// the next. It lives as long as the node, and so does what it needs for a batch: no other goroutine sees its arrays.
type sender struct {
	p        *pipeline
	sending  context.Context
	batch    []Call
	groups   grouping               // of the batch
	reply    [1]rueidis.RedisResult // to a batch of one call
	replaced []Call                 // of the batch, to be sent again over the connection that was opened meanwhile
	lag      *Unreplicated          // why the last batch does not count; a pipeline with replicas has one sender

	// The context of the batches, which timer ends after the batch timeout: it must show no deadline. A callee may look
	// at it after its call, so it is never reset: after an end comes a new one.
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer
}

func (s *sender) run() {
	defer s.stop()
	for s.p.n.life.Err() == nil {
		if s.p.n.underWay.Load() >= groupLeast {
			runtime.Gosched() // so that goroutines that are ready to run add their calls
		}
		batch, renews, later := s.p.take(s.batch[:0])
		if len(batch) == 0 {
			if !s.rest(later) {
				return
			}
			continue
		}
		s.p.n.underWay.Add(int64(len(batch)))
		s.send(batch)
		s.p.n.underWay.Add(-int64(len(batch)))
		clear(batch)
		s.batch, s.reply[0] = batch, rueidis.RedisResult{}
		if renews {
			s.p.mu.Lock()
			s.p.renewing = false
			s.p.mu.Unlock()
		}
	}
}

// stop frees the context of the batches.
func (s *sender) stop() {
	if s.ctx != nil {
		s.timer.Stop()
		s.cancel()
	}
}

// rest waits until the sender is called, or until later. It returns false at the end of the node.
func (s *sender) rest(later time.Duration) bool {
	var retry <-chan time.Time
	if later < clock.Never {
		timer := time.NewTimer(later)
		defer timer.Stop()
		retry = timer.C
	}
	select {
	case <-s.p.wake:
		return true
	case <-retry:
		s.p.mu.Lock()
		s.p.idle--
		s.p.mu.Unlock()
		return true
	case <-s.p.n.life.Done():
		return false
	}
}

// send sends the batch, and sends the calls that did not run once more in another mode.
func (s *sender) send(batch []Call) {
	if timeout := s.p.n.m.cfg.BatchTimeout; s.ctx == nil {
		s.ctx, s.cancel = context.WithCancel(s.sending)
		s.timer = time.AfterFunc(timeout, s.cancel)
	} else {
		s.timer.Reset(timeout)
	}
	ctx := s.ctx
	defer func() {
		s.groups.clear()
		if !s.timer.Stop() {
			s.ctx = nil // its end is not ours any more
		}
	}()
	if s.lag != nil && !s.hasCaughtUp(ctx) {
		now := s.p.n.m.cfg.Clock.Now()
		for _, c := range batch {
			c.To.Receive(rueidis.NewErrorResult(&NotSent{Cause: s.lag}), now)
		}
		return
	}
	inSet := func(c Call) bool { return c.AllOrNone != nil }
	if !s.p.replicates && !s.p.n.separated.Load() && slices.ContainsFunc(batch, inSet) {
		batch = s.groups.ofSets(s.p.n.m, batch)
	}
	if len(batch) >= groupLeast && !s.p.replicates {
		batch = s.groups.of(s.p.n, batch)
	}
	for unsent := (parcels{{calls: batch}}); len(unsent) > 0; {
		var again parcels
		for _, parcel := range unsent {
			s.exchange(ctx, parcel, &again)
		}
		unsent = again
	}
	if len(s.replaced) > 0 {
		s.p.sendAgain(s.replaced)
		s.replaced = nil
	}
}

// repeats reports whether a call whose connection was replaced is sent again, and keeps it for that.
func (s *sender) repeats(c Call) bool {
	cfg := s.p.n.m.cfg
	now := cfg.Clock.Now().Mono
	if c.until == 0 {
		c.until = now + cfg.SlowCallAfter
	}
	if to, may := c.To.(Repeater); !may || now > c.until || !to.Repeats() {
		return false
	}
	s.p.n.answered()
	s.replaced = append(s.replaced, c)
	return true
}

// parcel is what is sent together, in one mode.
type parcel struct {
	mode  sendMode
	calls []Call
}

type parcels []parcel

func (all *parcels) add(mode sendMode, calls ...Call) {
	for i, parcel := range *all {
		if parcel.mode == mode {
			(*all)[i].calls = append(parcel.calls, calls...)
			return
		}
	}
	*all = append(*all, parcel{mode, calls})
}

// exchange sends the calls together and completes each with its reply. Calls that have to be sent again are added to
// again.
func (s *sender) exchange(ctx context.Context, now parcel, again *parcels) {
	p, m := s.p, s.p.n.m
	sent, dials := m.cfg.Clock.Now(), m.Dials()
	complete := func(c *Call, r rueidis.RedisResult) {
		if r.NonRedisError() == errLeft {
			again.add(sendMode{}, *c)
			return
		}
		// An answer of one of several masters may have come over a connection that was opened since the request was sent.
		replaced := m.cfg.Quarantine > 0 && r.NonRedisError() == nil && m.Dials() != dials
		if replaced && s.repeats(*c) {
			return
		}
		if err := r.Error(); err != nil {
			mode, then := p.n.next(now.mode, err, !p.replicates)
			switch {
			case then == resend:
				again.add(mode, *c)
				return
			case then == split && c.split != nil:
				p.n.separate(err)
				again.add(mode, c.split()...)
				return
			}
		}
		if ctx.Err() != nil && r.NonRedisError() != nil {
			r = rueidis.NewErrorResult(&NoReply{After: m.cfg.Clock.Now().Mono - sent.Mono})
		}
		r = p.n.nameFailure(ctx, r, sent)
		if err := lackOfAnswer(r); err != nil {
			p.n.unanswered(err)
		} else {
			p.n.answered()
		}
		if replaced && !c.AnyServer {
			r = rueidis.NewErrorResult(errReconnected)
		}
		c.To.Receive(r, sent)
	}
	for i, r := range s.roundTrip(ctx, now.calls, now.mode, dials) {
		c := &now.calls[i]
		if c.members == nil || kindOf(r.Error()) == unknownScript && !now.mode.source {
			complete(c, r)
			continue
		}
		divide(p.n, r, c.members, complete)
	}
}

// lackOfAnswer returns why the server has not answered. It returns nil for a refusal, and if only the replicas are too
// few.
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

func (s *sender) roundTrip(ctx context.Context, batch []Call, mode sendMode, dials uint64) []rueidis.RedisResult {
	p := s.p
	if p.replicates {
		return s.roundTripReplicated(ctx, batch, mode, dials)
	}
	client := p.n.client
	if mode.routed {
		client = p.n.m.client
		defer p.n.answeredByOther()
	}
	if len(batch) == 1 { // the client keeps no array of it, whose use by a late answer it would have to await
		s.reply[0] = client.Do(ctx, s.command(client.B(), &batch[0], mode, dials))
		return s.reply[:]
	}
	return client.DoMulti(ctx, s.commands(client, batch, mode, dials)...)
}

func (s *sender) commands(client rueidis.Client, batch []Call, mode sendMode, dials uint64) rueidis.Commands {
	b := client.B()
	commands := make(rueidis.Commands, len(batch), len(batch)+1)
	for i := range batch {
		commands[i] = s.command(b, &batch[i], mode, dials)
	}
	return commands
}

func (s *sender) command(b rueidis.Builder, c *Call, mode sendMode, dials uint64) rueidis.Completed {
	vote := c.Vote
	if s.p.n.m.cfg.Quarantine > 0 {
		vote = s.p.n.m.current(vote, dials)
	}
	return c.Script.command(b, mode, s.p.n.declared(c.Script, mode, c.Keys), vote, c.Args)
}

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

// hasCaughtUp reports whether the replicas have the writes of the last batch, if they had not confirmed them in time.
// It sends WAIT once more with a short timeout, which an idle server extends to a tenth of a second. If the server does
// not report, the next batch finds the reason.
func (s *sender) hasCaughtUp(ctx context.Context) bool {
	client, need := s.p.n.client, int64(s.lag.Need)
	got, err := client.Do(ctx, client.B().Wait().Numreplicas(need).Timeout(1).Build()).AsInt64()
	if err == nil && got < need {
		return false
	}
	s.lag = nil
	return true
}

// roundTripReplicated sends the calls, followed by WAIT on the same connection. Calls that another server may have to
// answer are sent one by one, each with its own WAIT.
func (s *sender) roundTripReplicated(
	ctx context.Context, batch []Call, mode sendMode, dials uint64,
) (results []rueidis.RedisResult) {
	if client := s.p.n.client; !mode.routed && !mode.lockOnly && (s.p.n.direct || !s.p.n.m.cluster) {
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
	case mode.to == "" && !s.p.n.direct && s.p.n.m.cluster:
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
