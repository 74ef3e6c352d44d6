package engine

import (
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// onMessage takes in a message of a master: `hold token us ttl` is a hand-off, `hold` alone says that an older hold
// waits behind it. Messages are hints; what they say of others is ignored.
func (e *Engine) onMessage(m *transport.Master, from *transport.Node, text string) {
	f := strings.Fields(text)
	if len(f) != 1 && len(f) != 4 {
		return
	}
	l := e.lookup(f[0])
	switch {
	case l == nil:
	case len(f) == 1:
		l.yieldRequested(m, f[0])
	default:
		token, err := fencing.ParseToken(f[1])
		grantedAt, err2 := strconv.ParseInt(f[2], 10, 64)
		ttl, err3 := strconv.ParseInt(f[3], 10, 64)
		if err == nil && err2 == nil && err3 == nil {
			l.handedOff(m, from, f[0], token, grantedAt, time.Duration(ttl)*time.Millisecond)
		}
	}
}

// yieldRequested offers the master's grant to an older hold.
func (l *Lease) yieldRequested(m *transport.Master, hold string) {
	l.mu.Lock()
	defer l.unlock()
	if l.phase == asking && hold == l.hold {
		l.ballot.YieldRequested(m.Index)
		l.perform(l.ballot.Next(nil))
	}
}

// handedOff takes in a grant to a waiter. The lease has at least so much left as its TTL exceeds the most that can have
// gone by on the server's clock since the grant. Where that is not known, or nothing is left, the waiter asks the master;
// one that does not know yet that it is queued there asks as soon as it does.
func (l *Lease) handedOff(
	m *transport.Master, from *transport.Node, hold string, token fencing.Token, grantedAt int64, ttl time.Duration,
) {
	now := l.e.clock.Now()
	until, known := l.e.handoffTrust(m, from, l.keys[0], grantedAt, ttl, now)
	l.mu.Lock()
	defer l.unlock()
	switch {
	case hold != l.hold || l.phase == ended:
	case known:
		l.ballot.Granted(m.Index, token, until)
		if l.asking != nil {
			l.asking.decide()
		} else {
			l.perform(l.ballot.Next(nil))
		}
	case l.phase == asking && l.ballot.Vote(m.Index).State == ballot.Queued:
		l.e.waiters[m.Index].wake(l.name)
	case l.phase == asking:
		l.asking.notified |= 1 << (m.Index % 64)
	}
}

// handoffTrust returns until when a hand-off is trusted. The sample of the clock has to be of the server that the
// message is from. A grant from after the latest that the clock can show means that it was set forward since.
func (e *Engine) handoffTrust(
	m *transport.Master, from *transport.Node, key string, grantedAt int64, ttl time.Duration, now clock.Instant,
) (clock.Instant, bool) {
	latest, known := m.ServerAtMost(key, from, now)
	left := ttl - time.Duration(max(latest-grantedAt, 0))*time.Microsecond
	if !known || left <= 0 || grantedAt > latest {
		return clock.Instant{}, false
	}
	return e.drift.Trusted(now, left), true
}

// onListen is called when messages of a node arrive from now on, or of all nodes where none is named.
func (e *Engine) onListen(m *transport.Master, _ *transport.Node) {
	e.waiters[m.Index].wakeAll()
}

// onMoved is called when other servers answer for some keys of the master. What the server before them was asked for
// may be unknown to them: the waiters ask, and what was released a moment ago is released again.
func (e *Engine) onMoved(m *transport.Master) {
	e.releases[m.Index].repeat()
	e.waiters[m.Index].wakeAll()
}

// onDeaf is called when messages of a node cannot be had. Its waiters ask at a short interval instead.
func (e *Engine) onDeaf(m *transport.Master, n *transport.Node, err error) {
	e.warn("messages to those who wait cannot be had; asking instead, which costs more and takes longer",
		slog.String("master", n.Addr()), slog.Any("error", err))
	if hook := e.cfg.Hooks.NoMessages; hook != nil {
		e.events.Offer(func() { hook(n.Addr(), err) })
	}
	e.waiters[m.Index].wakeAll()
}

// failWaiters ends every acquisition that waits.
func (e *Engine) failWaiters(kind Kind, cause error) {
	for _, w := range e.waiters {
		for _, a := range w.all() {
			a.lease.mu.Lock()
			if a.lease.phase == asking {
				a.giveUp(a.failure(kind, cause))
			}
			a.lease.unlock()
		}
	}
}
