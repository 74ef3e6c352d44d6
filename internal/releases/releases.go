// Package releases gives holds back where no caller waits for that: of leases that were lost, of attempts that were
// given up, and after a release that has failed. A caller that waits sends its release itself, and reports what follows
// from the answer: Confirmed, or Retry.
//
// A release goes on until the master has confirmed it, has refused it for good, or must have let the hold expire. A
// server is down for 3 s, say: one release is sent again and again as a probe, with a growing pause. Once it is
// answered, the next ones follow.
//
// Begin with Queues, the releases on one master. queue.go says when each is sent. Leaving knows which requests of the
// process wait for it.
package releases

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// Release is the release of a hold on one master. It has all that it needs, so the lease may be collected: a server
// that is down for an hour keeps no leases in memory.
type Release struct {
	Key, Hold string
	Plain     bool // of a write hold without a named owner and a token block
	Tombstone wire.Tombstone
	Minimum   Minimum
	Outrun    wire.Outrun
	Until     clock.Instant // the hold has expired there by then
	Heir      Heir          // nil for none
	Floor     int64         // the token floor for the next holder: masters that get the same one mint the same token

	onAnswer func()          // sends the requests that wait for the answer; nil if none may wait
	node     *transport.Node // that has confirmed it; see recentReleases
}

// Minimum is left behind by a hold with WithMinHold; the zero value by all other holds.
type Minimum struct {
	Least time.Duration
	Until time.Duration // by the monotonic clock
}

// Heir is the hold that goes on in place of the released one. It ends if an operator broke that one.
type Heir interface{ Inherit(by *wire.Breaker) }

// Request returns the request for a release that is about to be sent.
func (r *Release) Request(now clock.Instant) wire.Release {
	request := wire.Release{Hold: r.Hold, Tombstone: r.Tombstone, Outrun: r.Outrun}
	if rest := r.Minimum.Until - now.Mono; rest > 0 {
		request.Minimum = wire.Minimum{Least: r.Minimum.Least, Rest: rest}
	}
	return request
}

// Config is what the releases on one master need. All fields are set.
type Config struct {
	Master  *transport.Master
	Clock   clock.Clock
	Timers  *timerqueue.Queue
	Keys    wire.Keyspace
	Script  func(plain bool) *transport.Script // of a release
	Pending func(change int64)                 // counts releases that begin, or end for good
	Dropped func()                             // too many wait: the hold ends with its TTL
	GoOn    func(key string, more wire.More)   // does the work that the master has left to this client
}

// Queues holds the releases on one master that no caller waits for, in a queue for each of its nodes. Each release is
// counted as under way, by Add, Retry or Repeat, until it is confirmed, refused for good or expired.
type Queues struct {
	Config
	Leaving Leaving
	recent  recentReleases

	mu     sync.Mutex // guards byNode; never held with the mutex of a queue
	byNode map[*transport.Node]*queue
}

// New returns the releases on one master, of which there are none.
func New(c Config) *Queues { return &Queues{Config: c, byNode: make(map[*transport.Node]*queue)} }

// at returns the queue of the node that answers for this lock.
func (p *Queues) at(lock string) *queue {
	n := p.Master.At(lock)
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.byNode[n]
	if q == nil {
		q = &queue{p: p, n: n}
		p.byNode[n] = q
	}
	return q
}

// Add counts a release, and sends it or has it wait. From here on single attempts of this process for the lock are sent
// after the master's answer, unless its node fails: then they fail as well.
//
// Add may be called under the mutex of a lease. over is nil, or sends single attempts that need not wait any more: the
// caller runs it without a mutex.
func (p *Queues) Add(r *Release, together bool) (over func()) {
	p.Pending(+1)
	if !p.Master.At(r.Key).Failing() {
		r.onAnswer = p.Leaving.Add(r.Key)
	}
	return p.at(r.Key).add(r, together)
}

// Confirmed is called once the master has answered that the hold is gone there.
func (p *Queues) Confirmed(r *Release, reply wire.ReleaseReply) {
	if !p.Master.Standalone {
		p.recent.note(p.Master, r)
	}
	if reply.Broken != nil && r.Heir != nil {
		r.Heir.Inherit(reply.Broken)
	}
	if reply.More != wire.NoMore {
		p.GoOn(r.Key, reply.More)
	}
}

// Retry records that a release failed, and schedules another attempt. A release that the server will never run, because
// it refuses the user or a key has a value of another type, is dropped, and the hold expires by itself. The release may
// have run: the second run then finds the hold gone, and touches no other hold.
func (p *Queues) Retry(r *Release, cause error) {
	if p.Master.Permanent(cause) {
		return
	}
	q := p.at(r.Key)
	q.mu.Lock()
	defer q.unlockAndGoOn()
	p.Pending(+1)
	q.keepLocked(r)
	q.backOffLocked()
}

// SendNow sends the releases that a single attempt for this lock waits for, also behind a release without an answer.
// The attempt then waits for one round trip and not for two, which a node timeout may be too short for.
func (p *Queues) SendNow(lock string) {
	q := p.at(lock)
	q.mu.Lock()
	defer q.unlockAndGoOn()
	if q.failures == 0 {
		q.sendLocked(mostInFlight, false)
	}
}

// HandedOff sends the release that waits for this hold, which a message hands the lock. The message shows that the
// server serves, and nothing can use the lock before it has the release: so that waits for no backoff.
func (p *Queues) HandedOff(hold string) {
	p.mu.Lock()
	queues := slices.Collect(maps.Values(p.byNode))
	p.mu.Unlock()
	for _, q := range queues {
		q.hurry(hold)
	}
}

// Repeat is called when other servers answer for some of the locks. All waiting releases are due at once, and the
// releases that the servers before them have confirmed are sent again for locks that those servers do not answer for
// any more.
func (p *Queues) Repeat() {
	p.mu.Lock()
	queues := p.byNode
	// Releases that are added from here on go to the queue of the node that answers now.
	p.byNode = make(map[*transport.Node]*queue)
	p.mu.Unlock()
	var all []*Release
	for _, q := range queues {
		all = append(all, q.takeAll()...)
	}
	again := p.recent.take(p.Master, p.Clock.Now())
	p.Pending(int64(len(again)))
	for _, r := range append(all, again...) {
		if over := p.at(r.Key).add(r, true); over != nil {
			over()
		}
	}
}

// recentReleases are the last releases that one master has confirmed. A server that was replaced and has not noticed it
// confirms releases that its successor does not receive, and on the successor the hold would last for the rest of its
// TTL. The releases are therefore sent again when another server answers. If there are too many, the oldest are
// dropped, and their locks become free a little later.
type recentReleases struct {
	mu  sync.Mutex
	all []Release // at most recentMost
}

// recentMost releases are remembered: those of a second or two, the time in which a client follows a failover.
const recentMost = 1024

func (x *recentReleases) note(m *transport.Master, r *Release) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = append(x.all[max(len(x.all)-recentMost+1, 0):], Release{
		Key: r.Key, Hold: r.Hold, Until: r.Until, Minimum: r.Minimum, node: m.At(r.Key),
	})
}

// take removes and returns the releases to send again. A node of a Cluster is one server, so there only the releases of
// locks that another node now answers for are sent again.
func (x *recentReleases) take(m *transport.Master, now clock.Instant) (again []*Release) {
	x.mu.Lock()
	defer x.mu.Unlock()
	kept := x.all[:0]
	for _, r := range x.all {
		switch {
		case r.Until.Passed(now): // the hold has expired by itself
		case m.Replaced(r.node, r.Key):
			again = append(again, &r)
		default:
			kept = append(kept, r)
		}
	}
	x.all = kept
	return again
}

// Leaving has the locks of which this process gives back a hold on one master although no caller waits for that: of a
// lease with BackgroundRelease, of one that the process has kept or lost, or of an attempt that was given up.
//
// Goroutine A unlocks in the background, and B tries the lock. If B's request overtakes the release, the master refuses
// it for the sake of A's hold. So a single attempt that left while releases were open, and is refused, asks again once
// they are answered. A request that queues needs nothing: it is handed the lock.
type Leaving struct {
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

// Add registers a release before it is sent. onAnswer is called once, when the master has answered or failed to.
func (v *Leaving) Add(lock string) (onAnswer func()) {
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
func (v *Leaving) leave(lock string, of *departures) {
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

// Any reports whether a release of the lock has no answer so far.
func (v *Leaving) Any(lock string) bool {
	if v.open.Load() == 0 {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.locks[lock] != nil
}

// After calls f once the releases that are open now are answered, at once if there are none.
func (v *Leaving) After(lock string, f func()) {
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
