package engine

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// release is the release of a hold on one master. It has all that it needs, so the lease may be collected: a server
// that is down for an hour keeps no leases in memory.
type release struct {
	of        *releaseQueues // of the master
	key       string
	hold      string
	tombstone wire.Tombstone
	minimum   minimum
	outrun    wire.Outrun
	until     clock.Instant // the hold has expired there by then

	heir     *driver         // the hold that goes on in place of this one, nil for none: see inherit
	onAnswer func()          // sends the requests that wait for the answer; nil if none may wait
	job      *giving         // counts the answer; nil in a queue, and for a single master's caller
	isOver   bool            // the job has counted it; under the job's mutex
	node     *transport.Node // that has confirmed it; see recentReleases
}

// minimum is left behind by a hold with WithMinHold; the zero value by all others.
type minimum struct {
	least time.Duration
	until time.Duration // by the monotonic clock
}

// request returns the request for a release that is about to be sent.
func (r *release) request(now clock.Instant) wire.Release {
	request := wire.Release{Hold: r.hold, Tombstone: r.tombstone, Outrun: r.outrun}
	if rest := r.minimum.until - now.Mono; rest > 0 {
		request.Minimum = wire.Minimum{Least: r.minimum.least, Rest: rest}
	}
	return request
}

// hasLast reports whether the request has an argument that stands in place of other holds.
func (r *release) hasLast() bool { return r.minimum.least > 0 || r.outrun.Grant > 0 }

func (r *release) Receive(result rueidis.RedisResult, sent clock.Instant) {
	had, failure := r.answered(result, sent)
	if r.onAnswer != nil {
		r.onAnswer()
	}
	r.job.count(r.of.m.Index, had, failure)
}

// answered applies the answer. A release that failed is retried in the background until the hold has expired. It may
// have run: the second run then finds the hold gone, and touches no other hold.
func (r *release) answered(result rueidis.RedisResult, sent clock.Instant) (had bool, failure *NodeFailure) {
	m := r.of.m
	reply, err := wire.ReadRelease(result)
	if err != nil {
		again := *r
		again.job, again.onAnswer = nil, nil
		if r.job == nil || r.job.by != adopting || !r.job.postpone(&again, err) {
			r.of.retry(&again, err)
		}
		failed := failureOf(m, r.key, m.Explain(err))
		return false, &failed
	}
	m.Sample(r.key, sent, reply.Micros)
	r.confirmed(reply)
	return reply.Was == wire.WasGranted, nil
}

// confirmed is called once the master has answered that the hold is gone there.
func (r *release) confirmed(reply wire.ReleaseReply) {
	m := r.of.m
	if !m.Standalone {
		r.of.recent.note(r)
	}
	if reply.Broken != nil {
		inherit(r.heir, reply.Broken)
	}
	if reply.More != wire.NoMore {
		r.of.e.waiters[m.Index].goOn(r.key, reply.More)
	}
}

// inherit ends the hold because the hold before it was broken, although this process released that one without knowing.
// An acquisition that asks again goes on under its next id, a lease that was converted with the hold in the other mode.
// An operator broke hold A just as it restarted as B, say, and a message that names A is not for B. So the answer to
// A's release ends B. Without an heir nothing goes on.
func inherit(h *driver, by *Breaker) {
	if h == nil {
		return
	}
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.replaced { // by a conversion, while the release was on its way
		h = h.lease.standing.Load()
	}
	h.step(hold.Event{Kind: hold.Broken, By: by, Keeps: !by.Now})
}

// releaseQueues holds the releases on one master that no caller waits for, in a queue for each of its nodes. Each
// release is counted as under way, by announce, retry or repeat, until it is confirmed, refused for good or expired.
// Close waits for that count.
type releaseQueues struct {
	e       *Engine
	m       *transport.Master
	leaving leaving
	recent  recentReleases

	mu     sync.Mutex // guards byNode; each queue has its own mutex
	byNode map[*transport.Node]*releaseQueue
}

// queue returns the queue of the node that answers for this lock.
func (p *releaseQueues) queue(lock string) *releaseQueue {
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

// announce counts a release that is about to be added. From here on single attempts of this process for the lock are
// sent after the master's answer, unless its node fails: then they fail as well.
func (r *release) announce() {
	lock := r.key
	r.of.e.underWay.add(+1)
	if !r.of.m.At(lock).Failing() {
		r.onAnswer = r.of.leaving.add(lock)
	}
}

// sendNow sends the releases that a single attempt for this lock waits for, also those behind a release without an
// answer. The attempt then waits for one round trip and not for two, which a node timeout may be too short for.
func (p *releaseQueues) sendNow(lock string) {
	q := p.queue(lock)
	q.mu.Lock()
	defer q.unlock()
	if q.failures == 0 {
		q.sendLocked(releasesUnderWay, false)
	}
}

// handedOff sends the release that waits for this hold, which a message hands the lock. The message shows that the
// server serves, and nobody can use the lock before it has the release: so that waits for no backoff.
func (p *releaseQueues) handedOff(hold string) {
	p.mu.Lock()
	queues := slices.Collect(maps.Values(p.byNode))
	p.mu.Unlock()
	for _, q := range queues {
		q.hurry(hold)
	}
}

// retry records that a release failed, and schedules another attempt. A release that the server will never run, because
// it refuses the user or a key has a value of another type, is dropped, and the hold expires by itself.
func (p *releaseQueues) retry(r *release, cause error) {
	if p.m.Permanent(cause) {
		return
	}
	q := p.queue(r.key)
	q.mu.Lock()
	defer q.unlock()
	p.e.underWay.add(+1)
	q.keepLocked(r)
	q.backOffLocked()
}

// repeat is called when other servers answer for some of the locks. All waiting releases are due at once, and the
// releases that the servers before them have confirmed are sent again for locks that those servers do not answer for
// any more.
func (p *releaseQueues) repeat() {
	p.mu.Lock()
	queues := p.byNode
	// Releases that are added from here on go to the queue of the node that answers now.
	p.byNode = make(map[*transport.Node]*releaseQueue)
	p.mu.Unlock()
	for _, q := range queues {
		for _, r := range q.takeAll() {
			p.queue(r.key).add(r)
		}
	}
	for _, r := range p.recent.take(p.m, p.e.clock.Now()) {
		p.e.underWay.add(+1)
		p.queue(r.key).add(r)
	}
}

// releaseQueue holds the releases for one node. A release that fails or is refused is retried with a backoff. The
// backoff belongs to the node and not to the hold: while the node refuses, one probe is sent for all releases.
type releaseQueue struct {
	p        *releaseQueues
	n        *transport.Node
	mu       sync.Mutex // guards what follows
	waiting  []*release
	underWay int // holds in calls that have no answer so far
	failures int // in a row
	timer    timerqueue.Timer
	probe    time.Duration // when the timer fires, or 0
	onAnswer []func()      // of releases, to be called when mu is unlocked
}

// These constants bound what is sent. When a crowd gives up at once, the releases that have to wait are sent together,
// many in a call. The pipeline would not send more calls at a time either.
const (
	releasesAtOnce   = 64   // calls that follow an answer, when a node is back
	releasesUnderWay = 1024 // holds in calls without an answer
	releasesPerCall  = 200  // holds of one lock
)

// releasesKept releases wait for a server that does not answer, 3 MB of them. The hold of each further one ends with
// its TTL.
const releasesKept = 1 << 14

// keepLocked queues releases, under mu.
func (q *releaseQueue) keepLocked(all ...*release) {
	room := min(max(releasesKept-len(q.waiting), 0), len(all))
	q.waiting = append(q.waiting, all[:room]...)
	for _, r := range all[room:] {
		q.leftLocked(r)
		q.p.e.underWay.add(-1)
		q.p.e.counters.unconfirmed.Add(1)
	}
}

// add queues a release. While the node fails, the release waits for the next probe, so that a server that comes back
// does not receive all accumulated requests at once. Behind a release without an answer it waits for that answer or
// until a call is full, so that those of a crowd that gives up go together.
func (q *releaseQueue) add(r *release) {
	q.mu.Lock()
	defer q.unlock()
	q.keepLocked(r)
	switch {
	case q.failures > 0:
		q.leftLocked(r)
	case q.underWay == 0 || len(q.waiting) >= releasesPerCall:
		q.sendLocked(releasesUnderWay, false)
	}
}

// hurry sends the release of this hold, if it waits.
func (q *releaseQueue) hurry(hold string) {
	q.mu.Lock()
	defer q.unlock()
	i := slices.IndexFunc(q.waiting, func(r *release) bool { return r.hold == hold })
	if i >= 0 {
		q.waiting[0], q.waiting[i] = q.waiting[i], q.waiting[0]
		q.sendLocked(q.underWay+1, true)
	}
}

// leftLocked has the single attempts that wait for this release ask again once mu is unlocked, under mu.
func (q *releaseQueue) leftLocked(r *release) {
	if r.onAnswer != nil {
		q.onAnswer = append(q.onAnswer, r.onAnswer)
		r.onAnswer = nil
	}
}

// unlock unlocks mu, and then sends the single attempts whose releases are over.
func (q *releaseQueue) unlock() {
	all := q.onAnswer
	q.onAnswer = nil
	q.mu.Unlock()
	for _, f := range all {
		f()
	}
}

// takeAll removes and returns the waiting releases, and ends the backoff. A goroutine that has found this queue before
// repeat replaced it may still add a release: without a backoff that is sent, and needs no timer.
func (q *releaseQueue) takeAll() (waiting []*release) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, q.waiting, q.failures = q.waiting, nil, 0
	q.p.e.timers.Cancel(&q.timer)
	q.probe = 0
	return waiting
}

// backOffLocked schedules the next probe, under mu. The probe waits for the end of the node's own backoff, because it
// would not be sent before. No single attempt waits for that long.
func (q *releaseQueue) backOffLocked() {
	if q.failures == 0 {
		for _, r := range q.waiting {
			q.leftLocked(r)
		}
	}
	now := q.p.e.clock.Now().Mono
	at := now + transport.Backoff(q.failures)
	q.failures++
	if until, cause := q.n.Backoff(now); cause != nil {
		at = max(at, until)
	}
	if q.probe == 0 || at < q.probe {
		q.probe = at
		q.p.e.timers.Set(&q.timer, q, at)
	}
}

// Fire sends one probe if the last call failed, and else all that releasesUnderWay permits.
func (q *releaseQueue) Fire(clock.Instant) {
	q.mu.Lock()
	defer q.unlock()
	q.probe = 0
	most := releasesUnderWay
	if q.failures > 0 {
		most = q.underWay + 1
	}
	q.sendLocked(most, false)
}

// sendLocked sends waiting releases until that many holds are on their way, under mu, and drops the releases whose hold
// has expired by itself. A server that comes back after more than a TTL therefore receives no releases from before its
// failure.
func (q *releaseQueue) sendLocked(most int, urgent bool) {
	e, m := q.p.e, q.p.m
	now, proposal := e.clock.Now(), e.tokens.Proposal()
	for len(q.waiting) > 0 && q.underWay < most {
		batch := q.takeLocked(now)
		if len(batch) == 0 {
			continue
		}
		q.underWay += len(batch)
		first := batch[0]
		release := first.request(now)
		for _, r := range batch[1:] {
			release.Others = append(release.Others, r.hold)
		}
		m.Post(transport.Call{
			Script: e.scripts.of(m).release, Keys: e.keys.ForCall(nil, first.key), Vote: m.Vote(proposal),
			Args: release.Args(nil), Urgent: urgent, AnyServer: true,
			To: transport.ReceiverFunc(func(result rueidis.RedisResult, _ clock.Instant) { q.answered(batch, result) }),
		})
	}
	if q.underWay == 0 && len(q.waiting) == 0 { // all have expired: no answer will arrive that would end the backoff
		q.failures = 0
	}
}

// takeLocked removes and returns the first waiting release and the releases behind it that the same call can carry:
// releases of the same lock without a tombstone, a minimum, an heir or a counter to be set back. It drops releases that
// have expired.
func (q *releaseQueue) takeLocked(now clock.Instant) (batch []*release) {
	for len(q.waiting) > 0 && len(batch) < releasesPerCall {
		r := q.waiting[0]
		alone := r.tombstone.TTL != "" || r.heir != nil // the reply is about the first hold
		if len(batch) > 0 && (r.key != batch[0].key || alone || r.hasLast() || batch[0].hasLast()) {
			break
		}
		q.waiting[0] = nil
		q.waiting = q.waiting[1:]
		if r.until.Passed(now) {
			q.p.e.underWay.add(-1)
			q.leftLocked(r)
		} else {
			batch = append(batch, r)
		}
	}
	return batch
}

// answered completes the releases of a call, or queues them again. A release that is queued again keeps its tombstone,
// because the request that the tombstone is for may still arrive. Every success sends the next releases: the backoff
// belongs to the node, and one answer shows that it is over.
func (q *releaseQueue) answered(batch []*release, result rueidis.RedisResult) {
	e := q.p.e
	reply, err := wire.ReadRelease(result)
	if err == nil {
		for _, r := range batch {
			r.confirmed(reply)
			reply.Broken, reply.More = nil, wire.NoMore // it is about the first hold
		}
	}
	q.mu.Lock()
	defer q.unlock()
	q.underWay -= len(batch)
	for _, r := range batch {
		q.leftLocked(r)
	}
	if err != nil && !q.p.m.Permanent(err) {
		q.keepLocked(batch...)
		q.backOffLocked()
		return
	}
	e.underWay.add(-int64(len(batch)))
	q.failures = 0
	q.sendLocked(min(releasesUnderWay, q.underWay+releasesAtOnce), false)
}

// recentReleases are the last releases that one master has confirmed. A server that was replaced and has not noticed it
// confirms releases that its successor does not receive, and on the successor the hold would last for the rest of its
// TTL. The releases are therefore sent again when another server answers. If there are too many, the oldest are
// dropped, and their locks become free a little later.
type recentReleases struct {
	mu  sync.Mutex
	all []release // at most recentMost
}

// recentMost releases are remembered: those of a second or two, the time in which a client follows a failover.
const recentMost = 1024

func (x *recentReleases) note(r *release) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = append(x.all[max(len(x.all)-recentMost+1, 0):], release{
		of: r.of, key: r.key, hold: r.hold, until: r.until, minimum: r.minimum, node: r.of.m.At(r.key),
	})
}

// take removes and returns the releases to send again. A node of a Cluster is one server, so there only the releases of
// locks that another node now answers for are sent again.
func (x *recentReleases) take(m *transport.Master, now clock.Instant) (again []*release) {
	x.mu.Lock()
	defer x.mu.Unlock()
	kept := x.all[:0]
	for _, r := range x.all {
		switch {
		case r.until.Passed(now): // the hold has expired by itself
		case m.Replaced(r.node, r.key):
			again = append(again, &r)
		default:
			kept = append(kept, r)
		}
	}
	x.all = kept
	return again
}

// leaving has the locks of which this process gives back a hold on one master although no caller waits for that: of a
// lease with BackgroundRelease, of one that the process has kept or lost, or of an attempt that was given up.
//
// Goroutine A unlocks in the background, and B tries the lock. If B's request overtakes the release, the master refuses
// it for the sake of A's hold. So a single attempt that left while releases were open, and is refused, asks again once
// they are answered. A request that queues needs nothing: it is handed the lock.
type leaving struct {
	open  atomic.Int64 // releases without an answer, of all locks
	mu    sync.Mutex   // guards what follows; no other is taken under it
	locks map[string]*departures
}

// departures are open releases of one lock. The first attempt that waits for them closes the list: later releases are
// in the next one, which is open until this one is over. So attempts do not wait for each other's releases.
type departures struct {
	open      int
	followers []func()
}

// add registers a release before it is sent. onAnswer is called once, when the master has answered or failed to.
func (v *leaving) add(lock string) (onAnswer func()) {
	v.open.Add(1)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.locks == nil {
		v.locks = make(map[string]*departures)
	}
	last := v.locks[lock]
	if last == nil || len(last.followers) > 0 {
		next := new(departures)
		if last != nil {
			next.open++
			last.followers = append(last.followers, func() { v.leave(lock, next) })
		}
		last, v.locks[lock] = next, next
	}
	last.open++
	return func() { v.open.Add(-1); v.leave(lock, last) }
}

// leave records that one of these releases is over.
func (v *leaving) leave(lock string, of *departures) {
	v.mu.Lock()
	of.open--
	over := of.open == 0
	if over && v.locks[lock] == of {
		delete(v.locks, lock)
	}
	v.mu.Unlock()
	if over {
		for _, f := range of.followers {
			f()
		}
	}
}

// any reports whether a release of the lock has no answer so far.
func (v *leaving) any(lock string) bool {
	if v.open.Load() == 0 {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.locks[lock] != nil
}

// after calls f once the releases that are open now are answered, at once if there are none.
func (v *leaving) after(lock string, f func()) {
	v.mu.Lock()
	all := v.locks[lock]
	if all != nil {
		all.followers = append(all.followers, f)
	}
	v.mu.Unlock()
	if all == nil {
		f()
	}
}
