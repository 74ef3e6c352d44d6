package engine

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// job is one script call that nobody's goroutine waits for: a renewal, a refresh, a release in the background.
type job struct {
	program *program
	keys    []string
	args    []string
	done    func(r rueidis.RedisResult, sent instant) // must not block
}

// lane sends the jobs of one master from one goroutine: whatever has gathered while a batch was on its way is the
// next batch. Masters have a lane each, so a slow one holds up nobody else's renewals.
type lane struct {
	m    *master
	mu   sync.Mutex
	jobs []job
	kick chan struct{}
}

// laneBatch bounds a pipeline, and by that how long a renewal waits behind others.
const laneBatch = 256

func newLane(m *master) *lane { return &lane{m: m, kick: make(chan struct{}, 1)} }

func (l *lane) post(j job) {
	l.mu.Lock()
	l.jobs = append(l.jobs, j)
	l.mu.Unlock()
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

func (l *lane) take() []job {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.jobs), laneBatch)
	batch := l.jobs[:n:n]
	if l.jobs = l.jobs[n:]; len(l.jobs) == 0 {
		l.jobs = nil
	}
	return batch
}

// run sends until ctx ends; then nothing more is sent.
func (l *lane) run(ctx context.Context) {
	for {
		select {
		case <-l.kick:
		case <-ctx.Done():
			return
		}
		for batch := l.take(); len(batch) > 0 && ctx.Err() == nil; batch = l.take() {
			l.send(ctx, batch)
		}
	}
}

func (l *lane) send(ctx context.Context, batch []job) {
	sent := l.m.e.clock.now()
	if _, cause := l.m.resting(sent.mono); cause != nil { // else a dead master's backlog would be tried batch by batch
		for _, j := range batch {
			j.done(rueidis.NewErrorResult(cause), sent)
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.m.e.cfg.NodeTimeout)
	defer cancel()
	results := l.pipeline(undated{ctx}, batch)
	for i, r := range results {
		if ctx.Err() != nil && r.NonRedisError() != nil {
			r = rueidis.NewErrorResult(&NoReply{After: l.m.e.clock.now().mono - sent.mono})
		}
		r = impartial(ctx, r)
		l.m.heard(l.m.e.clock.now().mono, r.NonRedisError())
		batch[i].done(r, sent)
	}
}

func (l *lane) pipeline(ctx context.Context, batch []job) []rueidis.RedisResult {
	b := l.m.client.B()
	commands := make(rueidis.Commands, len(batch))
	for i, j := range batch {
		commands[i] = j.program.byDigest(b, j.keys, j.args)
	}
	results := l.m.client.DoMulti(ctx, commands...)
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
		commands = append(commands, batch[i].program.whole(b, batch[i].keys, batch[i].args))
	}
	for i, r := range l.m.client.DoMulti(ctx, commands...) {
		results[again[i]] = r
	}
	return results
}

// NoReply is the end of this package's own patience with a master, never of the caller's context.
type NoReply struct{ After time.Duration }

func (e *NoReply) Error() string { return "no reply in " + e.After.Round(time.Millisecond).String() }
