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

// onMessage takes in a message of a master: `hold token us ttl` is a hand-off, with `first waiting` behind it to a
// cohort: the first token of its block, and how many wait for it; `hold` alone says that an older hold waits behind it,
// `hold wanted` that somebody waits for what a cohort has. Messages are hints; what they say of others is ignored.
func (b *mailbox) onMessage(m *transport.Master, from *transport.Node, text string) {
	f := strings.Fields(text)
	if len(f) == 0 {
		return
	}
	l := b.e.registry.lookup(f[0])
	switch h, isHandOff := readHandOff(f); {
	case l == nil:
	case len(f) == 1:
		l.yieldRequested(m, f[0])
	case len(f) == 2:
		l.wantedMessage(f[0])
	case isHandOff:
		l.handedOff(m, from, h)
	}
}

// handOff is the message of a grant to a waiter.
type handOff struct {
	hold         string
	token, first fencing.Token // first: of a block, 0 where there is none
	grantedAt    int64         // by the server's clock, us
	ttl          time.Duration
	wanted       bool // somebody waits behind it
}

func readHandOff(f []string) (h handOff, ok bool) {
	if len(f) != 4 && len(f) != 6 {
		return h, false
	}
	var n [5]int64
	for i, text := range f[1:] {
		var err error
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return h, false
		}
	}
	h = handOff{
		hold: f[0], token: fencing.Token(n[0]), grantedAt: n[1], ttl: time.Duration(n[2]) * time.Millisecond,
		first: fencing.Token(n[3]), wanted: n[4] > 0,
	}
	return h, n[0] > 0 && h.token <= fencing.MaxToken && n[3] >= 0
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

// handedOff takes in a grant to a waiter. The lease has at least so much left as its TTL exceeds the most that can have
// gone by on the server's clock since the grant. Where that is not known, or nothing is left, the waiter asks the
// master; one that does not know yet that it is queued there asks as soon as it does.
func (l *Lease) handedOff(m *transport.Master, from *transport.Node, h handOff) {
	now, v := l.e.clock.Now(), &l.voting
	until, known := v.handoffTrust(m, from, h.grantedAt, h.ttl, now)
	v.mu.Lock()
	defer v.mu.Unlock()
	if h.wanted && h.hold == v.id {
		l.want()
	}
	switch {
	case h.hold != v.id || v.phase == ended:
	case known:
		v.ballot.Vote(m.Index).Granted(h.token, until)
		v.ballot.Vote(m.Index).Block(h.token, h.first)
		if v.asking != nil {
			v.asking.decide()
		} else {
			v.perform(v.ballot.Next(nil))
		}
	case v.phase == asking && v.ballot.Vote(m.Index).State == ballot.Queued:
		v.e.waiters[m.Index].wake(v.name)
	case v.phase == asking:
		v.asking.notified |= 1 << (m.Index % 64)
	}
}

// handoffTrust returns until when a hand-off is trusted. The sample of the clock has to be of the server that the
// message is from. A grant from after the latest that the clock can show means that it was set forward since.
func (v *voting) handoffTrust(
	m *transport.Master, from *transport.Node, grantedAt int64, ttl time.Duration, now clock.Instant,
) (clock.Instant, bool) {
	latest, known := m.ServerAtMost(v.keys[0], from, now)
	left := ttl - time.Duration(max(latest-grantedAt, 0))*time.Microsecond
	if !known || left <= 0 || grantedAt > latest {
		return clock.Instant{}, false
	}
	return v.e.drift.Trusted(now, left), true
}
