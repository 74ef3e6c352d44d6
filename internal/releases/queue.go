package releases

import (
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// queue holds the releases for one node. A release that fails or is refused is retried with a backoff. The backoff
// belongs to the node and not to the hold: while the node refuses, one probe is sent for all releases.
type queue struct {
	p        *Queues
	n        *transport.Node
	mu       sync.Mutex // guards what follows
	waiting  []*Release
	inFlight int // holds in calls that have no answer so far
	failures int // in a row
	timer    timerqueue.Timer
	probe    time.Duration // when the timer fires, or 0
	onAnswer []func()      // of releases, to be called when mu is unlocked
}

// These constants bound what is sent. When a crowd gives up at once, the releases that have to wait are sent together,
// many in a call. The pipeline would not send more calls at a time either.
const (
	mostAtOnce   = 64   // calls that follow an answer, when a node is back
	mostInFlight = 1024 // holds in calls without an answer
	mostPerCall  = 200  // holds of one lock
)

// mostKept releases wait for a server that does not answer, 3 MB of them. The hold of each further one ends with its
// TTL.
const mostKept = 1 << 14

// keepLocked queues releases, under mu.
func (q *queue) keepLocked(all ...*Release) {
	room := min(max(mostKept-len(q.waiting), 0), len(all))
	q.waiting = append(q.waiting, all[:room]...)
	for _, r := range all[room:] {
		q.leftLocked(r)
		q.p.Pending(-1)
		q.p.Dropped()
	}
}

// add queues a release, and returns what Queues.Add does. While the node fails, the release waits for the next probe,
// so that a server that comes back does not receive all accumulated requests at once. A node that answers, and refuses
// releases, gets one that is not to wait beside its probes. With together it waits behind a release without an answer,
// for that answer or until a call is full: a crowd that gives up has many of them.
func (q *queue) add(r *Release, together bool) (over func()) {
	q.mu.Lock()
	q.keepLocked(r)
	switch {
	case q.failures > 0 && !together && !q.n.Failing():
		q.firstLocked(len(q.waiting) - 1)
	case q.failures > 0:
		q.leftLocked(r)
	case !together || q.inFlight == 0 || len(q.waiting) >= mostPerCall:
		q.sendLocked(mostInFlight, !together)
	}
	return q.unlock()
}

// firstLocked sends one of the waiting releases before all others, under mu.
func (q *queue) firstLocked(i int) {
	q.waiting[0], q.waiting[i] = q.waiting[i], q.waiting[0]
	q.sendLocked(q.inFlight+1, true)
}

// hurry sends the release of this hold, if it waits.
func (q *queue) hurry(hold string) {
	q.mu.Lock()
	defer q.unlockAndGoOn()
	i := slices.IndexFunc(q.waiting, func(r *Release) bool { return r.Hold == hold })
	if i >= 0 {
		q.firstLocked(i)
	}
}

// leftLocked has the single attempts that wait for this release ask again once mu is unlocked, under mu.
func (q *queue) leftLocked(r *Release) {
	if r.onAnswer != nil {
		q.onAnswer = append(q.onAnswer, r.onAnswer)
		r.onAnswer = nil
	}
}

// unlock unlocks mu, and returns what sends the single attempts whose releases are over, or nil.
func (q *queue) unlock() (over func()) {
	all := q.onAnswer
	q.onAnswer = nil
	q.mu.Unlock()
	if all == nil {
		return nil
	}
	return func() {
		for _, f := range all {
			f()
		}
	}
}

// unlockAndGoOn unlocks mu and sends them.
func (q *queue) unlockAndGoOn() {
	if over := q.unlock(); over != nil {
		over()
	}
}

// takeAll removes and returns the waiting releases, and ends the backoff. A goroutine that has found this queue before
// repeat replaced it may still add a release: without a backoff that is sent, and needs no timer.
func (q *queue) takeAll() (waiting []*Release) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, q.waiting, q.failures = q.waiting, nil, 0
	q.p.Timers.Cancel(&q.timer)
	q.probe = 0
	return waiting
}

// backOffLocked schedules the next probe, under mu. The probe waits for the end of the node's own backoff, because it
// would not be sent before. No single attempt waits for that long.
func (q *queue) backOffLocked() {
	if q.failures == 0 {
		for _, r := range q.waiting {
			q.leftLocked(r)
		}
	}
	now := q.p.Clock.Now().Mono
	at := now + transport.Backoff(q.failures)
	q.failures++
	if until, cause := q.n.Backoff(now); cause != nil {
		at = max(at, until)
	}
	if q.probe == 0 || at < q.probe {
		q.probe = at
		q.p.Timers.Set(&q.timer, q, at)
	}
}

// Fire sends one probe if the last call failed, and else all that mostInFlight permits.
func (q *queue) Fire(clock.Instant) {
	q.mu.Lock()
	defer q.unlockAndGoOn()
	q.probe = 0
	most := mostInFlight
	if q.failures > 0 {
		most = q.inFlight + 1
	}
	q.sendLocked(most, false)
}

// sendLocked sends waiting releases until that many holds are on their way, under mu, and drops the releases whose hold
// has expired by itself. A server that comes back after more than a TTL therefore receives no releases from before its
// failure.
func (q *queue) sendLocked(most int, urgent bool) {
	m, now := q.p.Master, q.p.Clock.Now()
	for len(q.waiting) > 0 && q.inFlight < most {
		batch := q.takeLocked(now)
		if len(batch) == 0 {
			continue
		}
		q.inFlight += len(batch)
		first := batch[0]
		release := first.Request(now)
		for _, r := range batch[1:] {
			release.Others = append(release.Others, r.Hold)
		}
		m.Post(transport.Call{
			Script: q.p.Script(first.Plain && len(batch) == 1), Keys: q.p.Keys.ForCall(nil, first.Key),
			Vote: m.Vote(first.Floor), Args: release.Args(nil), Urgent: urgent, AnyServer: true,
			To: transport.ReceiverFunc(func(result rueidis.RedisResult, sent clock.Instant) {
				q.answered(batch, result, sent)
			}),
		})
	}
	if q.inFlight == 0 && len(q.waiting) == 0 { // all have expired: no answer will arrive that would end the backoff
		q.failures = 0
	}
}

// takeLocked removes and returns the first waiting release and the releases behind it that the same call can carry:
// releases of the same lock without a tombstone, a minimum, an heir or a counter to be set back. It drops releases that
// have expired.
func (q *queue) takeLocked(now clock.Instant) (batch []*Release) {
	for len(q.waiting) > 0 && len(batch) < mostPerCall {
		r := q.waiting[0]
		alone := r.Tombstone.TTL != "" || r.Heir != nil // the reply is about the first hold
		if len(batch) > 0 && (r.Key != batch[0].Key || alone || r.hasLast() || batch[0].hasLast()) {
			break
		}
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		if r.Until.Passed(now) {
			q.p.Pending(-1)
			q.leftLocked(r)
		} else {
			batch = append(batch, r)
		}
	}
	return batch
}

// hasLast reports whether the request has an argument that stands in place of other holds.
func (r *Release) hasLast() bool { return r.Minimum.Least > 0 || r.Outrun.Grant > 0 }

// answered completes the releases of a call, or queues them again. A release that is queued again keeps its tombstone,
// because the request that the tombstone is for may still arrive. Every success sends the next releases: the backoff
// belongs to the node, and one answer shows that it is over.
func (q *queue) answered(batch []*Release, result rueidis.RedisResult, sent clock.Instant) {
	reply, err := wire.ReadRelease(result)
	if err == nil {
		q.p.Master.Sample(batch[0].Key, sent, reply.Micros)
		for _, r := range batch {
			q.p.Confirmed(r, reply)
			reply.Broken, reply.More = nil, wire.NoMore // it is about the first hold
		}
	}
	q.mu.Lock()
	defer q.unlockAndGoOn()
	q.inFlight -= len(batch)
	for _, r := range batch {
		q.leftLocked(r)
	}
	if err != nil && !q.p.Master.Permanent(err) {
		q.keepLocked(batch...)
		q.backOffLocked()
		return
	}
	q.p.Pending(-int64(len(batch)))
	q.failures = 0
	q.sendLocked(min(mostInFlight, q.inFlight+mostAtOnce), false)
}
