package transport

import (
	"context"
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
	reply    [1]rueidis.RedisResult // to a batch of one call
	replaced []Call                 // of the batch, to be sent again over the connection that was opened meanwhile
	lag      *Unreplicated          // why the last batch does not count; a pipeline with replicas has one sender

	// The context of the batches, which timer ends. A callee may look at it after its call, so it is never reset: after
	// an end comes a new one.
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer
}

func (s *sender) run() {
	defer func() {
		if s.ctx != nil {
			s.timer.Stop()
			s.cancel()
		}
	}()
	for s.p.n.life.Err() == nil {
		batch, renews, later := s.p.take(s.batch[:0])
		if len(batch) == 0 {
			if !s.rest(later) {
				return
			}
			continue
		}
		s.send(batch)
		clear(batch)
		s.batch, s.reply[0] = batch, rueidis.RedisResult{}
		if renews {
			s.p.mu.Lock()
			s.p.renewing = false
			s.p.mu.Unlock()
		}
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

// begin returns the context of the next batch, which ends after the batch timeout, or with the pipeline. It shows no
// deadline. The package documentation gives the reason.
func (s *sender) begin() context.Context {
	timeout := s.p.n.m.cfg.BatchTimeout
	if s.ctx == nil {
		s.ctx, s.cancel = context.WithCancel(s.sending)
		s.timer = time.AfterFunc(timeout, s.cancel)
	} else {
		s.timer.Reset(timeout)
	}
	return s.ctx
}

// end ends the use of the context by a batch.
func (s *sender) end() {
	if !s.timer.Stop() {
		s.ctx = nil // its end is not ours any more
	}
}

// send sends the batch, and sends the calls that did not run once more in another mode.
func (s *sender) send(batch []Call) {
	ctx := s.begin()
	defer s.end()
	if !s.hasCaughtUp(ctx) {
		s.refuse(batch)
		return
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

// repeats reports whether a call is sent again because its connection was replaced, and keeps it for that.
func (s *sender) repeats(c Call, dials uint64, r rueidis.RedisResult) bool {
	m := s.p.n.m
	to, may := c.To.(Repeater)
	if !may || !m.otherConnection(dials, r) {
		return false
	}
	now := m.cfg.Clock.Now().Mono
	if c.until == 0 {
		c.until = now + m.cfg.SlowCallAfter
	}
	if now > c.until || !to.Repeats() {
		return false
	}
	s.p.n.answered()
	s.replaced = append(s.replaced, c)
	return true
}

// parcel is a group of calls that are sent together, in one mode.
type parcel struct {
	mode  sendMode
	calls []Call
}

// parcels has one parcel for each mode.
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
	p, m, batch := s.p, s.p.n.m, now.calls
	sent, dials := m.cfg.Clock.Now(), m.Dials()
	for i, r := range s.roundTrip(ctx, batch, now.mode, dials) {
		if s.repeats(batch[i], dials, r) {
			continue
		}
		mode, then := p.n.next(now.mode, r, p != p.n.replicated)
		switch {
		case then == resend:
			again.add(mode, batch[i])
			continue
		case then == split && batch[i].split != nil:
			p.n.separate(r.Error())
			again.add(mode, batch[i].split()...)
			continue
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
		batch[i].To.Receive(m.sameConnection(dials, r), sent)
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
	if p == p.n.replicated {
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
	return c.Script.command(b, mode, c.Keys, s.p.n.m.current(c.Vote, dials), c.Args)
}
