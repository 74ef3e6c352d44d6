package engine

import (
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// tombstone is what a release leaves for an acquire of its hold that comes later, as arguments of release.lua: for how
// many ms, and '1' for doing so also where it finds the hold.
type tombstone struct{ ms, found string }

// tombstoneOn returns what may still reach the master, under mu: without a tombstone a request that arrives after the
// release would be granted, and the lock be nobody's for a TTL (cases no-tombstone and overtake). A request without an
// answer may be the one that was granted; one that had failed before it may be on its way all the same, over a
// connection that was replaced since. It cannot be for longer than the grant that it asks for would last.
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

// pendingRelease is a hold that one master may still have. It has all that a release needs, so the lease itself may be
// gone: a server that is down for an hour keeps no leases alive.
type pendingRelease struct {
	m         *transport.Master
	key       lockKey
	hold      string
	tombstone tombstone
	until     clock.Instant // by then the hold must have expired there

	withdrawal *withdrawal // that it is part of, if it is that of a conversion; of no meaning once that was taken
}

// releaseOn describes what one master may have of this hold, under mu.
func (v *voting) releaseOn(m *transport.Master) pendingRelease {
	return pendingRelease{
		m: m, key: v.key, hold: v.id, tombstone: v.tombstoneOn(m),
		// Renewals end with the lease, so nothing can have moved the expiry since; the node timeout covers a call that
		// is on its way.
		until: v.e.clock.Now().Add(v.terms.TTL + v.e.cfg.NodeTimeout),
	}
}

// releaseInBackground releases whatever any master may have of this hold, under mu, and has the registry forget it. The
// releases are counted before that, so that Close sees the one or the other; they leave when mu is given back.
func (v *voting) releaseInBackground() {
	for i, m := range v.e.masters {
		if v.ballot.Vote(i).Live() {
			r := v.releaseOn(m)
			if v.extra != nil {
				r.withdrawal = v.extra.withdrawal
				r.withdrawal.begin()
			}
			v.e.unconfirmed.add(+1)
			v.mu.afterUnlock(func() { v.e.releases[i].add(&r) })
		}
	}
	v.e.registry.forget(v.id)
}
