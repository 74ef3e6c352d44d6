package releases

import "github.com/seed74116694/fencelock/internal/clock"

// MostKept releases wait for a server.
const MostKept = mostKept

// AddBesideRepeat adds a release, by a goroutine that found the queue of its node just before other servers answered
// and the queue was replaced. It reports whether that queue waited for a probe.
func (p *Queues) AddBesideRepeat(r *Release) (waited bool) {
	q := p.at(r.Key)
	waited = q.failures > 0 && q.inFlight == 0
	p.Repeat()
	p.Pending(+1)
	q.add(r, true)
	return waited
}

// Fail has the node of a lock fail so many calls, one after the other.
func (p *Queues) Fail(lock string, times int) {
	q := p.at(lock)
	q.mu.Lock()
	for range times {
		q.backOffLocked()
	}
	q.unlockAndGoOn()
}

// Waiting is how many releases wait for the node of a lock.
func (p *Queues) Waiting(lock string) int { return len(p.at(lock).waiting) }

// Take has the node of a lock send the releases that one call carries.
func (p *Queues) Take(lock string, now clock.Instant) []*Release { return p.at(lock).takeLocked(now) }
