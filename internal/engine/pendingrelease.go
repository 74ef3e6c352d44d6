package engine

import (
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/transport"
)

// tombstone is what a release leaves for an acquire of its hold that comes later, as arguments of release.lua: for how
// many ms, and '1' for doing so also where it finds the hold.
type tombstone struct{ ms, found string }

// tombstoneOn returns what may still reach the master, under mu. A request without an answer may be the one that was
// granted; one that had failed before it may be on its way all the same, over a connection that was replaced since. It
// cannot be for longer than the grant that it asks for would last.
func (v *voting) tombstoneOn(m *transport.Master) tombstone {
	switch vote := v.ballot.Vote(m.Index); {
	case vote.Straggles():
		return tombstone{tombstoneArg(v.terms), "1"}
	case vote.Unanswered():
		return tombstone{tombstoneArg(v.terms), "0"}
	default:
		return tombstone{"0", "0"}
	}
}

// lateness bounds how long a request may be on its way to a master after its client has given up on it: the client's
// connection is closed by then.
const lateness = time.Minute

// tombstoneArg is how long a tombstone stays: as long as the late request can do harm. Beyond the TTL of its grant, or
// once its connection is closed, it cannot.
func tombstoneArg(t *Terms) string { return millis(min(t.TTL, lateness)) }

// pendingRelease is a hold that one master may still have.
type pendingRelease struct {
	m         *transport.Master
	keys      []string
	hold      string
	tombstone tombstone
	until     clock.Instant // by then the hold must have expired there
}

// releaseOn describes what one master may have of this hold, under mu.
func (v *voting) releaseOn(m *transport.Master) pendingRelease {
	return pendingRelease{
		m: m, keys: v.e.keys.sent(&v.keys), hold: v.id, tombstone: v.tombstoneOn(m),
		until: v.e.clock.Now().Add(v.terms.TTL + v.e.cfg.NodeTimeout),
	}
}

// releaseInBackground releases whatever any master may have of this hold, under mu.
func (v *voting) releaseInBackground() {
	for i, m := range v.e.masters {
		if v.ballot.Vote(i).Live() {
			r := v.releaseOn(m)
			v.mu.afterUnlock(func() { v.e.releases[i].add(&r) })
		}
	}
}

// pendingReleases are the releases of one master that nobody waits for. One that fails or is refused is tried again
// with a backoff, which is the master's and not the hold's: while it refuses, one probe goes out for all of them.
type pendingReleases struct {
	e        *Engine
	m        *transport.Master
	mu       sync.Mutex
	waiting  []*pendingRelease
	failures int // in a row
	timer    timerqueue.Timer
}

// releasesAtOnce bounds what is sent when a master is back.
const releasesAtOnce = 64

// add has the hold released. While the master fails it joins those that wait for the next probe: a master that comes
// back is not met by as many requests as were given up meanwhile.
func (p *pendingReleases) add(r *pendingRelease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.e.unconfirmed.add(+1)
	p.waiting = append(p.waiting, r)
	if p.failures == 0 {
		p.sendLocked(len(p.waiting))
	}
}

// retry notes that a release failed, and tries it again later.
func (p *pendingReleases) retry(r *pendingRelease, cause error) {
	if p.m.Permanent(cause) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.e.unconfirmed.add(+1)
	p.waiting = append(p.waiting, r)
	p.backOffLocked()
}

// backOffLocked sets the next probe, under mu: not before the master's own backoff is over, since it would not be sent.
func (p *pendingReleases) backOffLocked() {
	now := p.e.clock.Now().Mono
	at := now + transport.Backoff(p.failures)
	p.failures++
	if until, cause := p.m.Backoff(now); cause != nil {
		at = max(at, until)
	}
	p.e.timers.SetEarlier(&p.timer, p, at)
}

// Fire sends a probe, or all where the master has taken the last one.
func (p *pendingReleases) Fire(now clock.Instant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	most := releasesAtOnce
	if p.failures > 0 {
		most = 1
	}
	p.sendLocked(most)
}

// sendLocked sends at most so many of those that wait, under mu, and drops those whose hold has expired by itself.
func (p *pendingReleases) sendLocked(most int) {
	now := p.e.clock.Now()
	proposal := p.e.tokens.proposal()
	sent := false
	for len(p.waiting) > 0 && most > 0 {
		r := p.waiting[0]
		p.waiting[0] = nil
		p.waiting = p.waiting[1:]
		if r.until.Passed(now) {
			p.e.unconfirmed.add(-1)
			continue
		}
		most, sent = most-1, true
		args := []string{p.m.Vote(proposal), r.hold, r.tombstone.ms, r.tombstone.found}
		p.m.Post(transport.Call{
			Script: p.e.scripts.Load().release, Keys: r.keys, Args: args,
			Done: func(result rueidis.RedisResult, sent clock.Instant) { p.answered(r, result) },
		})
	}
	if !sent && len(p.waiting) == 0 { // all have expired: no answer is to come that would end the backoff
		p.failures = 0
	}
}

// answered ends one release, or puts it back. Every success lets the next ones go: the backoff is the master's, and one
// answer shows that it is over.
func (p *pendingReleases) answered(r *pendingRelease, result rueidis.RedisResult) {
	var reply [3]int64
	err := readInts(result, reply[:])
	if err == nil && reply[2] == 1 {
		p.e.continueAdmission(r.m, r.keys)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && !p.m.Permanent(err) {
		p.waiting = append(p.waiting, r)
		p.backOffLocked()
		return
	}
	p.e.unconfirmed.add(-1)
	p.failures = 0
	p.sendLocked(releasesAtOnce)
}
