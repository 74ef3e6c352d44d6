package transport

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Call is one script call without a waiting goroutine: a refresh, a raise, a release in the background.
type Call struct {
	Script *Script
	Keys   []string
	Vote   wire.Vote
	Args   []string                                        // after the vote
	Done   func(r rueidis.RedisResult, sent clock.Instant) // must not block
	Urgent bool                                            // a user waits for it: also tried during a backoff

	Replicated bool // the answer is *Unreplicated if it ran and too few replicas confirmed it

	split func() []Call // the same as calls that name one lock each; nil for a call with one lock
}

// pipeline sends the calls of one node. The calls that arrive while its batches are in flight form the next batch. Each
// node has its own pipeline, so a slow node does not delay the renewals on other nodes. Calls of one hold need no
// order: a release leaves a tombstone for every unanswered request.
type pipeline struct {
	n        *Node
	batches  int // how many may be in flight
	mu       sync.Mutex
	calls    []Call
	renewals []*Renewal
	renewing bool // a batch with renewals is in flight: new renewals wait
	ended    bool // the node has no slots any more
	kick     chan struct{}
	lag      *Unreplicated // why the last batch does not count; used by the batch in flight, of which there is one
}

// A batch is bounded, so that an early expiry does not wait behind all other renewals. Several batches may be in
// flight, so that a call does not wait for the answers to earlier ones. They are few, so that calls are batched.
const (
	batchesAtOnce    = 4
	callsPerBatch    = 256
	renewalsPerBatch = 8 * renewalsPerCall
)

func newPipeline(n *Node, batches int) *pipeline {
	return &pipeline{n: n, batches: batches, kick: make(chan struct{}, 1)}
}

// post returns false if the pipeline has ended.
func (p *pipeline) post(calls []Call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.calls = append(p.calls, calls...)
	p.wake()
	return true
}

// renew returns false if the pipeline has ended.
func (p *pipeline) renew(r *Renewal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.renewals = append(p.renewals, r)
	p.wake()
	return true
}

func (p *pipeline) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// drainTimeout is how long the requests in flight to a node without slots may still take.
const drainTimeout = 100 * time.Millisecond

// run sends until the node ends. Unsent calls are then posted again, unless the engine ends too, because other nodes
// have the slots now. Requests in flight may still be answered.
func (p *pipeline) run() {
	sending, cancel := context.WithCancel(p.n.m.cfg.Life)
	defer cancel()
	var underWay sync.WaitGroup
	defer underWay.Wait()
	p.sendUntilEnd(sending, &underWay)
	if p.n.m.cfg.Life.Err() == nil { // sending, its child, ends a moment later
		p.handOn()
		time.AfterFunc(drainTimeout, cancel)
	}
}

func (p *pipeline) sendUntilEnd(ctx context.Context, underWay *sync.WaitGroup) {
	retry := time.NewTimer(clock.Never)
	defer retry.Stop()
	slots := make(chan struct{}, p.batches)
	for {
		retry.Reset(p.sendAll(ctx, slots, underWay))
		select {
		case <-p.kick:
		case <-retry.C:
		case <-p.n.life.Done():
			return
		}
	}
}

func (p *pipeline) handOn() {
	p.mu.Lock()
	p.ended = true
	calls, renewals := p.calls, p.renewals
	p.calls, p.renewals = nil, nil
	p.mu.Unlock()
	for _, c := range calls {
		p.n.m.Post(c)
	}
	for _, r := range renewals {
		p.n.m.Renew(r)
	}
}

// sendAll sends batch after batch until nothing is left, or nothing that may be tried now. It then returns after how
// long to look again.
func (p *pipeline) sendAll(ctx context.Context, slots chan struct{}, underWay *sync.WaitGroup) time.Duration {
	for {
		select {
		case slots <- struct{}{}:
		case <-p.n.life.Done():
			return clock.Never
		}
		batch, renews, later := p.take(p.n.m.cfg.Clock.Now())
		if len(batch) == 0 {
			<-slots
			return later
		}
		underWay.Go(func() {
			p.send(ctx, batch)
			if renews {
				p.renewed()
			}
			<-slots
		})
	}
}

// renewed releases the renewals that have been collected.
func (p *pipeline) renewed() {
	p.mu.Lock()
	p.renewing = false
	waiting := len(p.renewals) > 0
	p.mu.Unlock()
	if waiting {
		p.wake()
	}
}

// take returns the next batch. During a backoff, calls that are not urgent fail at once, and all other calls wait for
// the next attempt.
func (p *pipeline) take(now clock.Instant) (batch []Call, renews bool, later time.Duration) {
	_, cause := p.n.health.backoff(now.Mono)
	later = clock.Never
	if cause != nil {
		p.failWhatCanWait(cause, now)
	}
	p.mu.Lock()
	waiting := len(p.calls) > 0 || len(p.renewals) > 0 && !p.renewing
	p.mu.Unlock()
	if !waiting {
		return nil, false, later
	}
	if at, refused := p.n.health.urgent(now.Mono); refused != nil {
		return nil, false, at - now.Mono
	}
	p.mu.Lock()
	var due, obsolete []*Renewal
	if !p.renewing {
		due, obsolete = takeRenewals(&p.renewals, now, renewalsPerBatch)
		p.renewing = len(due) > 0
	}
	n := min(len(p.calls), callsPerBatch)
	batch = append(p.renewalCalls(due), p.calls[:n]...)
	if p.calls = p.calls[n:]; len(p.calls) == 0 {
		p.calls = nil
	}
	p.mu.Unlock()
	for _, r := range obsolete {
		r.Done(false, &NoReply{After: 0}, now)
	}
	return batch, len(due) > 0, later
}

func (p *pipeline) failWhatCanWait(cause error, now clock.Instant) {
	p.mu.Lock()
	var refused, kept []Call
	for _, c := range p.calls {
		if c.Urgent {
			kept = append(kept, c)
		} else {
			refused = append(refused, c)
		}
	}
	p.calls = kept
	p.mu.Unlock()
	for _, c := range refused {
		c.Done(rueidis.NewErrorResult(p.n.m.notSent(cause)), now)
	}
}

// send sends the batch, and sends the calls that did not run once more in another mode.
func (p *pipeline) send(ctx context.Context, batch []Call) {
	ctx, cancel := context.WithTimeout(ctx, p.n.m.cfg.BatchTimeout)
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
func (p *pipeline) exchange(ctx context.Context, now parcel, again *parcels) {
	m, batch := p.n.m, now.calls
	sent, dials := m.cfg.Clock.Now(), m.Dials()
	for i, r := range p.roundTrip(ctx, batch, now.mode, dials) {
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
		batch[i].Done(m.sameConnection(dials, r), sent)
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

func (p *pipeline) roundTrip(ctx context.Context, batch []Call, mode sendMode, dials uint64) []rueidis.RedisResult {
	if p == p.n.replicated {
		return p.roundTripReplicated(withoutDeadline{ctx}, batch, mode, dials)
	}
	client := p.n.client
	if mode.routed {
		client = p.n.m.client
		defer p.n.answeredByOther()
	}
	return client.DoMulti(withoutDeadline{ctx}, p.commands(client, batch, mode, dials)...)
}

func (p *pipeline) commands(client rueidis.Client, batch []Call, mode sendMode, dials uint64) rueidis.Commands {
	b := client.B()
	commands := make(rueidis.Commands, len(batch), len(batch)+1)
	for i, c := range batch {
		commands[i] = c.Script.command(b, mode, c.Keys, p.n.m.current(c.Vote, dials), c.Args)
	}
	return commands
}
