package engine

import (
	"sync"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/transport"
)

// pendingReleases are the releases of one master that nobody waits for, in a queue for each of its nodes. Each is
// counted as unconfirmed, by whoever calls add or by retry, until it is confirmed, refused for good or expired; Close
// waits for that count.
type pendingReleases struct {
	e      *Engine
	m      *transport.Master
	recent recentReleases

	mu     sync.Mutex // guards byNode; the queues have their own
	byNode map[*transport.Node]*releaseQueue
}

func newPendingReleases(e *Engine, m *transport.Master) *pendingReleases {
	return &pendingReleases{e: e, m: m, byNode: make(map[*transport.Node]*releaseQueue)}
}

// queue returns that of the node which answers for this lock.
func (p *pendingReleases) queue(lock string) *releaseQueue {
	n := p.m.At(lock)
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.byNode[n]
	if q == nil {
		q = &releaseQueue{p: p, n: n}
		p.byNode[n] = q
	}
	return q
}

// add has the hold released, which is counted already. While its node fails it joins those that wait for the next
// probe: a server that comes back is not met by as many requests as were given up meanwhile.
func (p *pendingReleases) add(r *pendingRelease) {
	q := p.queue(r.key.lock())
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, r)
	if q.failures == 0 {
		q.sendLocked(releasesUnderWay)
	}
}

// retry notes that a release failed, and tries it again later. One that the server will never run, because it refuses
// the user or a key holds something else, is dropped: the hold expires by itself.
func (p *pendingReleases) retry(r *pendingRelease, cause error) {
	if p.m.Permanent(cause) {
		return
	}
	q := p.queue(r.key.lock())
	q.mu.Lock()
	defer q.mu.Unlock()
	p.e.unconfirmed.add(+1)
	q.waiting = append(q.waiting, r)
	q.backOffLocked()
}

// confirmed notes that the master has ended the hold, in case that another server takes its place.
func (p *pendingReleases) confirmed(r *pendingRelease) {
	if !p.m.Standalone() {
		p.recent.note(r, p.m.At(r.key.lock()))
	}
}

// repeat is called when other servers answer for some of the locks: what waits is due at once, and what the servers
// before them have confirmed is released again where they answer no more.
func (p *pendingReleases) repeat() {
	p.mu.Lock()
	queues := p.byNode
	// Whoever is released from here on finds the queue of the node that answers now.
	p.byNode = make(map[*transport.Node]*releaseQueue)
	p.mu.Unlock()
	for _, q := range queues {
		for _, r := range q.takeAll() {
			p.add(r)
		}
	}
	for _, r := range p.recent.take(p.e, p.m) {
		p.e.unconfirmed.add(+1)
		p.add(r)
	}
}

// releaseQueue are the releases for one node. One that fails or is refused is tried again with a backoff, which is the
// node's and not the hold's: while it refuses, one probe goes out for all of them.
type releaseQueue struct {
	p        *pendingReleases
	n        *transport.Node
	mu       sync.Mutex // guards what follows
	waiting  []*pendingRelease
	underWay int // holds that calls on their way name
	failures int // in a row
	timer    timerqueue.Timer
}

// What is sent is bounded. Of a crowd that gives up at once those that have to wait are released together, many in a
// call; the pipeline would not send more calls than that at a time either.
const (
	releasesAtOnce   = 64   // calls that follow an answer, when a node is back
	releasesUnderWay = 1024 // holds
	releasesPerCall  = 200  // holds of one lock
)

// takeAll takes out what waits. What is on its way comes back by its own answer, to the queue of whichever node answers
// for its lock then.
func (q *releaseQueue) takeAll() (waiting []*pendingRelease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, q.waiting = q.waiting, nil
	q.p.e.timers.Cancel(&q.timer)
	return waiting
}

// backOffLocked sets the next probe, under mu: not before the node's own backoff is over, since it would not be sent.
func (q *releaseQueue) backOffLocked() {
	now := q.p.e.clock.Now().Mono
	at := now + transport.Backoff(q.failures)
	q.failures++
	if until, cause := q.n.Backoff(now); cause != nil {
		at = max(at, until)
	}
	q.p.e.timers.SetEarlier(&q.timer, q, at)
}

// Fire sends a probe, or all where the node has taken the last one.
func (q *releaseQueue) Fire(clock.Instant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := releasesUnderWay
	if q.failures > 0 {
		most = q.underWay + 1
	}
	q.sendLocked(most)
}

// sendLocked sends what waits until so many holds are on their way, under mu, and drops those that have expired by
// themselves. So a server that comes back after more than a TTL is not sent what was released before that.
func (q *releaseQueue) sendLocked(most int) {
	e, m := q.p.e, q.p.m
	now, proposal := e.clock.Now(), e.tokens.proposal()
	for len(q.waiting) > 0 && q.underWay < most {
		batch := q.takeLocked(now)
		if len(batch) == 0 {
			continue
		}
		q.underWay += len(batch)
		first := batch[0]
		args := []string{m.Vote(proposal), first.hold, first.tombstone.ms, first.tombstone.found}
		for _, r := range batch[1:] {
			args = append(args, r.hold)
		}
		m.Post(transport.Call{
			Script: e.scriptsOf(m).release, Keys: e.keys.forCall(first.key), Args: args,
			Done: func(result rueidis.RedisResult, sent clock.Instant) { q.answered(batch, result) },
		})
	}
	if q.underWay == 0 && len(q.waiting) == 0 { // all have expired: no answer is to come that would end the backoff
		q.failures = 0
	}
}

// takeLocked takes the first of those that wait, and with it those behind it that one call can release: of the same
// lock, without a tombstone. What has expired is dropped.
func (q *releaseQueue) takeLocked(now clock.Instant) (batch []*pendingRelease) {
	for len(q.waiting) > 0 && len(batch) < releasesPerCall {
		r := q.waiting[0]
		if len(batch) > 0 && (r.key != batch[0].key || r.tombstone.ms != "0") {
			break
		}
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		if r.until.Passed(now) {
			q.p.e.unconfirmed.add(-1)
		} else {
			batch = append(batch, r)
		}
	}
	return batch
}

// answered ends the releases of a call, or puts them back. A release that was put back keeps its tombstone, since what
// that is for may still come. Every success lets the next ones go: the backoff is the node's, and one answer shows that
// it is over.
func (q *releaseQueue) answered(batch []*pendingRelease, result rueidis.RedisResult) {
	e := q.p.e
	var reply [3]int64
	err := readInts(result, reply[:])
	if err == nil {
		for _, r := range batch {
			r.withdrawal.end()
			q.p.confirmed(r)
		}
		if reply[2] != 0 {
			e.goOn(q.p.m, e.keys.forCall(batch[0].key), reply[2])
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.underWay -= len(batch)
	if err != nil && !q.p.m.Permanent(err) {
		q.waiting = append(q.waiting, batch...)
		q.backOffLocked()
		return
	}
	e.unconfirmed.add(-int64(len(batch)))
	q.failures = 0
	q.sendLocked(min(releasesUnderWay, q.underWay+releasesAtOnce))
}
