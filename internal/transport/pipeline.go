package transport

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
)

// Call is one script call that no goroutine waits for: a refresh, a raise, a release in the background.
type Call struct {
	Script *Script
	Keys   []string
	Args   []string
	Done   func(r rueidis.RedisResult, sent clock.Instant) // must not block
	Urgent bool                                            // a user waits for it: tried also during a backoff
}

// pipeline sends the calls of one master: whatever has gathered while its batches are on their way is the next batch.
// Each master has its own, so a slow one holds up nobody else's renewals. Calls of one hold need no order: a release
// leaves a tombstone for whatever is unanswered.
type pipeline struct {
	m        *Master
	mu       sync.Mutex
	calls    []Call
	renewals renewalHeap
	renewing bool // a batch with renewals is on its way: those that come gather
	kick     chan struct{}
}

// A batch is bounded, so that what expires soon does not wait behind all the rest. Several may be on their way, so that
// a call does not wait for the answers to others; few, so that they gather.
const (
	batchesAtOnce    = 4
	callsPerBatch    = 256
	renewalsPerBatch = 8 * renewalsPerCall
)

func newPipeline(m *Master) *pipeline { return &pipeline{m: m, kick: make(chan struct{}, 1)} }

func (p *pipeline) post(c Call) {
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	p.wake()
}

func (p *pipeline) renew(r *Renewal) {
	p.mu.Lock()
	heap.Push(&p.renewals, r)
	p.mu.Unlock()
	p.wake()
}

func (p *pipeline) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

func (p *pipeline) run(ctx context.Context) {
	retry := time.NewTimer(clock.Never)
	defer retry.Stop()
	var underWay sync.WaitGroup
	defer underWay.Wait()
	slots := make(chan struct{}, batchesAtOnce)
	for {
		retry.Reset(p.sendAll(ctx, slots, &underWay))
		select {
		case <-p.kick:
		case <-retry.C:
		case <-ctx.Done():
			return
		}
	}
}

// sendAll sends batch after batch until nothing is left, or nothing that may be tried now; then it returns after how
// long to look again.
func (p *pipeline) sendAll(ctx context.Context, slots chan struct{}, underWay *sync.WaitGroup) time.Duration {
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return clock.Never
		}
		batch, renews, later := p.take(p.m.cfg.Clock.Now())
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

// renewed lets the renewals go that have gathered.
func (p *pipeline) renewed() {
	p.mu.Lock()
	p.renewing = false
	waiting := len(p.renewals) > 0
	p.mu.Unlock()
	if waiting {
		p.wake()
	}
}

// take returns the next batch. During a backoff, calls that are not urgent fail at once, and the rest waits for the
// moment of the next attempt.
func (p *pipeline) take(now clock.Instant) (batch []Call, renews bool, later time.Duration) {
	_, cause := p.m.health.backoff(now.Mono)
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
	if at, refused := p.m.health.urgent(now.Mono); refused != nil {
		return nil, false, at - now.Mono
	}
	p.mu.Lock()
	var due, obsolete []*Renewal
	if !p.renewing {
		due, obsolete = p.renewals.take(now, renewalsPerBatch)
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
		c.Done(rueidis.NewErrorResult(&notSent{cause}), now)
	}
}

func (p *pipeline) send(ctx context.Context, batch []Call) {
	ctx, cancel := context.WithTimeout(ctx, p.m.cfg.Patience)
	defer cancel()
	if unknown := p.exchange(ctx, batch, (*Script).byDigest); len(unknown) > 0 {
		p.exchange(ctx, unknown, (*Script).whole)
	}
}

// exchange sends the calls together and ends each with its reply, but for those whose script the server does not know:
// they have not run.
func (p *pipeline) exchange(
	ctx context.Context, batch []Call, form func(*Script, rueidis.Builder, []string, []string) rueidis.Completed,
) (unknown []Call) {
	sent, dials := p.m.cfg.Clock.Now(), p.m.Dials()
	b := p.m.client.B()
	commands := make(rueidis.Commands, len(batch))
	for i, c := range batch {
		commands[i] = form(c.Script, b, c.Keys, p.m.current(c.Args, dials))
	}
	for i, r := range p.m.client.DoMulti(withoutDeadline{ctx}, commands...) {
		if unknownScript(r) {
			unknown = append(unknown, batch[i])
			continue
		}
		if ctx.Err() != nil && r.NonRedisError() != nil {
			r = rueidis.NewErrorResult(&NoReply{After: p.m.cfg.Clock.Now().Mono - sent.Mono})
		}
		r = p.m.nameTimeout(maskForeignEnd(ctx, r), sent)
		p.note(r)
		batch[i].Done(p.m.sameConnection(dials, r), sent)
	}
	return unknown
}

func (p *pipeline) note(r rueidis.RedisResult) {
	if err := r.NonRedisError(); err != nil {
		p.m.clock.doubt()
		p.m.answers.Store(0)
		p.m.health.failed(p.m.cfg.Clock.Now().Mono, err)
	} else if p.m.health.failing() {
		p.m.health.succeeded()
	}
}
