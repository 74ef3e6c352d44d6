package engine

import (
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// tombstone is what a release leaves for an acquire of its hold that arrives later, as arguments of release.lua: for
// how many ms, and '1' to leave it even if the release finds the hold.
type tombstone struct{ ms, found string }

// tombstoneOn returns the tombstone that a release leaves on this master, under mu. Without a tombstone, a request that
// arrives after the release would be granted, and the lock would be held without a holder for a TTL (cases no-tombstone
// and overtake). A request without an answer may be the request that was granted. An earlier request that failed may
// still be on its way too, over a connection that was replaced since. It cannot do harm for longer than the grant that
// it asks for would last.
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

// lateness bounds how long a request may be on its way to a master after its client has given up on it. By then the
// client's connection is closed.
const lateness = time.Minute

// tombstoneArg returns how long a tombstone stays, which is as long as the late request can do harm. It can do none
// beyond the TTL of its grant, or once its connection is closed.
func tombstoneArg(t *Terms) string { return millis(min(t.TTL, lateness)) }

// pendingRelease is a hold that one master may still have. It contains all that a release needs, so the lease itself
// may be collected: a server that is down for an hour keeps no leases in memory.
type pendingRelease struct {
	m         *transport.Master
	key       lockKey
	hold      string
	tombstone tombstone
	until     clock.Instant // the hold has expired there by then

	withdrawal *withdrawal // set if the hold is a conversion; unused after the conversion was granted
}

// releaseOn returns the release of what one master may have of this hold, under mu. It is about to be sent: a
// withdrawal counts it from here on.
func (v *voting) releaseOn(m *transport.Master) pendingRelease {
	var withdrawn *withdrawal
	if v.extra != nil {
		withdrawn = v.extra.withdrawal
		withdrawn.begin()
	}
	return pendingRelease{
		m: m, key: v.key, hold: v.id, tombstone: v.tombstoneOn(m), withdrawal: withdrawn,
		// Renewals end with the lease, so nothing can have moved the expiry since. The node timeout covers a call that
		// is still on its way.
		until: v.e.clock.Now().Add(v.terms.TTL + v.e.cfg.NodeTimeout),
	}
}

// releaseInBackground releases all that any master may have of this hold, under mu, and removes the hold from the
// registry. The releases are counted first, so that Close sees either the lease or its releases. They are sent when mu
// is unlocked.
func (v *voting) releaseInBackground() {
	for i, m := range v.e.masters {
		if v.ballot.Vote(i).Live() {
			v.queueRelease(m)
		}
	}
	v.e.registry.forget(v.id)
}

// queueRelease hands the release on one master to the master's pending releases, under mu.
func (v *voting) queueRelease(m *transport.Master) {
	r := v.releaseOn(m)
	v.e.unconfirmed.add(+1)
	v.mu.afterUnlock(func() { v.e.releases[m.Index].add(&r) })
}
