package engine

import (
	"sync"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/transport"
)

// pendingReleases holds the releases for one master that no caller waits for, in a queue for each of its nodes. Each
// release is counted as unconfirmed, by the caller of add or by retry, until it is confirmed, refused for good or
// expired. Close waits for that count.
type pendingReleases struct {
	e      *Engine
	m      *transport.Master
	recent recentReleases

	mu     sync.Mutex // guards byNode; each queue has its own mutex
	byNode map[*transport.Node]*releaseQueue
}

func newPendingReleases(e *Engine, m *transport.Master) *pendingReleases {
	return &pendingReleases{e: e, m: m, byNode: make(map[*transport.Node]*releaseQueue)}
}

// queue returns the queue of the node that answers for this lock.
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

// add queues the release of a hold that is counted already. While its node fails, the release waits for the next probe,
// so that a server that comes back does not receive all accumulated requests at once.
func (p *pendingReleases) add(r *pendingRelease) {
	q := p.queue(r.key.lock())
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, r)
	if q.failures == 0 {
		q.sendLocked(releasesUnderWay)
	}
}

// retry records that a release failed, and schedules another attempt. A release that the server will never run, because
// it refuses the user or a key has a value of another type, is dropped, and the hold expires by itself.
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

// confirmed records that the master has ended the hold, in case another server takes its place.
func (p *pendingReleases) confirmed(r *pendingRelease) {
	if !p.m.Standalone() {
		p.recent.note(r, p.m.At(r.key.lock()))
	}
}

// repeat is called when other servers answer for some of the locks. All waiting releases are due at once, and the
// releases that the servers before them have confirmed are sent again for locks that those servers do not answer for
// any more.
func (p *pendingReleases) repeat() {
	p.mu.Lock()
	queues := p.byNode
	// Releases that are added from here on go to the queue of the node that answers now.
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

// releaseQueue holds the releases for one node. A release that fails or is refused is retried with a backoff. The
// backoff belongs to the node and not to the hold: while the node refuses, one probe is sent for all releases.
type releaseQueue struct {
	p        *pendingReleases
	n        *transport.Node
	mu       sync.Mutex // guards what follows
	waiting  []*pendingRelease
	underWay int // holds in calls that have no answer so far
	failures int // in a row
	timer    timerqueue.Timer
}

// These constants bound what is sent. When a crowd gives up at once, the releases that have to wait are sent together,
// many in a call. The pipeline would not send more calls at a time either.
const (
	releasesAtOnce   = 64   // calls that follow an answer, when a node is back
	releasesUnderWay = 1024 // holds in calls without an answer
	releasesPerCall  = 200  // holds of one lock
)

// takeAll removes and returns the waiting releases. A release that is on its way returns with its own answer, to the
// queue of the node that answers for its lock then.
func (q *releaseQueue) takeAll() (waiting []*pendingRelease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, q.waiting = q.waiting, nil
	q.p.e.timers.Cancel(&q.timer)
	return waiting
}

// backOffLocked schedules the next probe, under mu. The probe waits for the end of the node's own backoff, because it
// would not be sent before.
func (q *releaseQueue) backOffLocked() {
	now := q.p.e.clock.Now().Mono
	at := now + transport.Backoff(q.failures)
	q.failures++
	if until, cause := q.n.Backoff(now); cause != nil {
		at = max(at, until)
	}
	q.p.e.timers.SetEarlier(&q.timer, q, at)
}

// Fire sends one probe if the last call failed, and else all that releasesUnderWay permits.
func (q *releaseQueue) Fire(clock.Instant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	most := releasesUnderWay
	if q.failures > 0 {
		most = q.underWay + 1
	}
	q.sendLocked(most)
}

// sendLocked sends waiting releases until that many holds are on their way, under mu, and drops the releases whose hold
// has expired by itself. A server that comes back after more than a TTL therefore receives no releases from before its
// failure.
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
	if q.underWay == 0 && len(q.waiting) == 0 { // all have expired: no answer will arrive that would end the backoff
		q.failures = 0
	}
}

// takeLocked removes and returns the first waiting release and the releases behind it that the same call can carry:
// releases of the same lock without a tombstone. It drops releases that have expired.
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

// answered completes the releases of a call, or queues them again. A release that is queued again keeps its tombstone,
// because the request that the tombstone is for may still arrive. Every success sends the next releases: the backoff
// belongs to the node, and one answer shows that it is over.
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
