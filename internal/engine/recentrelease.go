package engine

import (
	"sync"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// recentReleases are those that one master has confirmed last. A server that has been replaced, and has not noticed it,
// confirms releases that its successor never hears of: there the hold would stand for the rest of its TTL. So when
// another server answers, they are sent once more. The oldest are dropped where they are too many: their locks are free
// a little later, no more.
type recentReleases struct {
	mu   sync.Mutex
	ring []recentRelease
	next int // the oldest, once the ring is full
}

type recentRelease struct {
	key   lockKey
	hold  string
	node  *transport.Node // that confirmed it
	until clock.Instant   // by then the hold must have expired
}

// recentMost bounds what is remembered: the releases of a second or two, which is how long a client takes to follow.
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

// take returns what is to be released again, and forgets it. In a Cluster a node is one server, so there only the locks
// that another node answers for have to be released again.
func (x *recentReleases) take(e *Engine, m *transport.Master) (again []*pendingRelease) {
	now := e.clock.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	kept := x.ring[:0]
	for _, r := range x.ring {
		switch {
		// It has expired there by itself, and is forgotten.
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
