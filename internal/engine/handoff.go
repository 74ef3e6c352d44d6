package engine

import (
	"strconv"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// onMessage takes in a message of a master: `hold token us ttl server` is a hand-off, `hold` alone says that an older
// hold waits behind it. Messages are hints; what they say of others is ignored.
func (b *mailbox) onMessage(m *transport.Master, from *transport.Node, text string) {
	f := strings.Fields(text)
	if len(f) != 1 && len(f) != 5 {
		return
	}
	l := b.e.registry.lookup(f[0])
	switch {
	case l == nil:
	case len(f) == 1:
		l.yieldRequested(m, f[0])
	default:
		token, err := fencing.ParseToken(f[1])
		grantedAt, err2 := strconv.ParseInt(f[2], 10, 64)
		ttl, err3 := strconv.ParseInt(f[3], 10, 64)
		if err == nil && err2 == nil && err3 == nil {
			g := handoff{f[0], token, grantedAt, time.Duration(ttl) * time.Millisecond, f[4]}
			l.handedOff(m, from, g)
		}
	}
}

// yieldRequested offers the master's grant to an older hold.
func (v *voting) yieldRequested(m *transport.Master, hold string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.phase == asking && hold == v.id {
		v.ballot.Vote(m.Index).YieldRequested()
		v.perform(v.ballot.Next(nil))
	}
}

// handoff is a grant to a waiter, as a message tells of it.
type handoff struct {
	hold      string
	token     fencing.Token
	grantedAt int64 // by the server's clock, in microseconds
	ttl       time.Duration
	server    string // the process that has granted it
}

// handedOff takes in a grant to a waiter. The lease has at least so much left as its TTL exceeds the most that can have
// gone by on the server's clock since the grant. Where that is not known, or nothing is left, the waiter asks the
// master; one that does not know yet that it is queued there asks as soon as it does.
func (v *voting) handedOff(m *transport.Master, from *transport.Node, g handoff) {
	now := v.e.clock.Now()
	until, known := v.handoffTrust(m, from, g, now)
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case g.hold != v.id || v.phase == ended:
	case known:
		v.granted(m, g.token, until)
		v.changed()
	case v.phase == asking && v.ballot.Vote(m.Index).State == ballot.Queued:
		v.e.waiters[m.Index].wake(v.name)
	case v.phase == asking:
		v.asking.notified |= 1 << (m.Index % 64)
	}
}

// handoffTrust returns until when a hand-off is trusted. The sample of the clock has to be of the server that the
// message is from. A grant from after the latest that the clock can show means that it was set forward since.
func (v *voting) handoffTrust(
	m *transport.Master, from *transport.Node, g handoff, now clock.Instant,
) (clock.Instant, bool) {
	latest, known := m.ServerAtMost(v.keys[0], from, g.server, now)
	left := g.ttl - time.Duration(max(latest-g.grantedAt, 0))*time.Microsecond
	if !known || left <= 0 || g.grantedAt > latest {
		return clock.Instant{}, false
	}
	return v.e.drift.Trusted(now, left), true
}
