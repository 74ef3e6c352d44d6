package engine

import (
	"sync"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// recentReleases are the last releases that one master has confirmed. A server that was replaced and has not noticed it
// confirms releases that its successor does not receive, and on the successor the hold would last for the rest of its
// TTL. The releases are therefore sent again when another server answers. If there are too many, the oldest are
// dropped, and their locks become free a little later.
type recentReleases struct {
	mu   sync.Mutex
	ring []recentRelease
	next int // index of the oldest, once the ring is full
}

type recentRelease struct {
	key   lockKey
	hold  string
	node  *transport.Node // the node that confirmed the release
	until clock.Instant   // the hold has expired by then
}

// recentMost bounds how many releases are remembered: the releases of a second or two, which is how long a client takes
// to follow a replacement.
const recentMost = 1024

func (x *recentReleases) note(r *pendingRelease, n *transport.Node) {
	x.mu.Lock()
	defer x.mu.Unlock()
	one := recentRelease{r.key, r.hold, n, r.until}
	if len(x.ring) < recentMost {
		x.ring = append(x.ring, one)
		return
	}
	x.ring[x.next] = one
	x.next = (x.next + 1) % recentMost
}

// take removes and returns the releases to send again. A node of a Cluster is one server, so there only the releases of
// locks that another node now answers for are sent again.
func (x *recentReleases) take(e *Engine, m *transport.Master) (again []*pendingRelease) {
	now := e.clock.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	kept := x.ring[:0]
	for _, r := range x.ring {
		switch {
		// The hold has expired by itself, so its release is dropped.
		case r.until.Passed(now):
		case m.Replaced(r.node, r.key.lock()):
			again = append(again, &pendingRelease{
				m: m, key: r.key, hold: r.hold, tombstone: tombstone{"0", "0"}, until: r.until,
			})
		default:
			kept = append(kept, r)
		}
	}
	clear(x.ring[len(kept):])
	x.ring, x.next = kept, 0
	return again
}
