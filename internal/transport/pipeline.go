package transport

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
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

// pipeline sends the calls of one master from one goroutine: whatever has gathered while a batch was on its way is the
// next batch. Each master has its own, so a slow one holds up nobody else's renewals.
type pipeline struct {
	m        *Master
	mu       sync.Mutex
	calls    []Call
	renewals renewalHeap
	kick     chan struct{}
	ctx      atomic.Pointer[context.Context] // of run
}

// A batch is bounded, so that what expires soon does not wait behind all the rest.
const (
	callsPerBatch    = 256
	renewalsPerBatch = 8 * renewalsPerCall
)

func newPipeline(m *Master) *pipeline { return &pipeline{m: m, kick: make(chan struct{}, 1)} }

// life ends when the pipeline does.
func (p *pipeline) life() context.Context {
	if ctx := p.ctx.Load(); ctx != nil {
		return *ctx
	}
	return context.Background()
}

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
	p.ctx.Store(&ctx)
	retry := time.NewTimer(clock.Never)
	defer retry.Stop()
	for {
		retry.Reset(p.sendAll(ctx))
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
func (p *pipeline) sendAll(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		now := p.m.cfg.Clock.Now()
		batch, later := p.take(now)
		if len(batch) == 0 {
			return later
		}
		p.send(ctx, batch)
	}
	return clock.Never
}

// take returns the next batch. During a backoff, calls that are not urgent fail at once, and the rest waits for the
// moment of the next attempt.
func (p *pipeline) take(now clock.Instant) (batch []Call, later time.Duration) {
	_, cause := p.m.health.backoff(now.Mono)
	later = clock.Never
	if cause != nil {
		p.failWhatCanWait(cause, now)
	}
	p.mu.Lock()
	waiting := len(p.calls)+len(p.renewals) > 0
	p.mu.Unlock()
	if !waiting {
		return nil, later
	}
	if p.m.health.failing() {
		if at, refused := p.m.health.urgent(now.Mono); refused != nil {
			return nil, at - now.Mono
		}
	}
	p.mu.Lock()
	due, obsolete := p.renewals.take(now, renewalsPerBatch)
	n := min(len(p.calls), callsPerBatch)
	batch = append(p.renewalCalls(due), p.calls[:n]...)
	if p.calls = p.calls[n:]; len(p.calls) == 0 {
		p.calls = nil
	}
	p.mu.Unlock()
	for _, r := range obsolete {
		r.Done(false, &NoReply{After: 0}, now)
	}
	return batch, later
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
		c.Done(rueidis.NewErrorResult(cause), now)
	}
}

func (p *pipeline) send(ctx context.Context, batch []Call) {
	sent := p.m.cfg.Clock.Now()
	ctx, cancel := context.WithTimeout(ctx, p.m.cfg.Patience)
	defer cancel()
	results := p.exchange(withoutDeadline{ctx}, batch)
	for i, r := range results {
		if ctx.Err() != nil && r.NonRedisError() != nil {
			r = rueidis.NewErrorResult(&NoReply{After: p.m.cfg.Clock.Now().Mono - sent.Mono})
		}
		r = maskForeignEnd(ctx, r)
		if err := r.NonRedisError(); err != nil {
			p.m.clock.doubt()
			p.m.answers.Store(0)
			p.m.health.failed(p.m.cfg.Clock.Now().Mono, err)
		} else if p.m.health.failing() {
			p.m.health.succeeded()
		}
		batch[i].Done(r, sent)
	}
}

func (p *pipeline) exchange(ctx context.Context, batch []Call) []rueidis.RedisResult {
	b := p.m.client.B()
	commands := make(rueidis.Commands, len(batch))
	for i, c := range batch {
		commands[i] = c.Script.byDigest(b, c.Keys, c.Args)
	}
	results := p.m.client.DoMulti(ctx, commands...)
	var again []int
	for i, r := range results {
		if unknownScript(r) {
			again = append(again, i)
		}
	}
	if len(again) == 0 {
		return results
	}
	commands = commands[:0]
	for _, i := range again {
		commands = append(commands, batch[i].Script.whole(b, batch[i].Keys, batch[i].Args))
	}
	for i, r := range p.m.client.DoMulti(ctx, commands...) {
		results[again[i]] = r
	}
	return results
}
