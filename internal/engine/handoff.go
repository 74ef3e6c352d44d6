package engine

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
)

// onMessage takes in a message of a master: `hold token us ttl` is a hand-off, with `first waiting` behind it to a
// cohort: the first token of its block, and how many wait for it; `hold` alone says that an older hold waits behind it,
// `hold wanted` that somebody waits for what a cohort has. Messages are hints; what they say of others is ignored.
func (e *Engine) onMessage(m *transport.Master, text string) {
	f := strings.Fields(text)
	switch len(f) {
	case 1:
		if l := e.lookup(f[0]); l != nil {
			l.yieldRequested(m, f[0])
		}
	case 2:
		e.wantedMessage(f[0])
	case 4, 6:
		if h, ok := readHandOff(f); ok {
			if l := e.lookup(h.hold); l != nil {
				l.handedOff(m, h)
			}
		}
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
func (l *Lease) yieldRequested(m *transport.Master, hold string) {
	l.mu.Lock()
	defer l.unlock()
	if l.phase == asking && hold == l.hold {
		l.ballot.YieldRequested(m.Index)
		l.perform(l.ballot.Next(nil))
	}
}

// handedOff takes in a grant to a waiter. The lease has at least so much left as its TTL exceeds the most that can have
// gone by on the server's clock since the grant. Without a sample of that clock, or with nothing left, the waiter asks
// the master, whether or not it knows already that it is queued there.
func (l *Lease) handedOff(m *transport.Master, h handOff) {
	now := l.e.clock.Now()
	until, known := l.e.handoffTrust(m, h.grantedAt, h.ttl, now)
	l.mu.Lock()
	defer l.unlock()
	if h.wanted && h.hold == l.hold {
		l.want()
	}
	switch {
	case h.hold != l.hold || l.phase == ended:
	case known:
		l.ballot.Granted(m.Index, h.token, until)
		l.ballot.Block(m.Index, h.token, h.first)
		if l.asking != nil {
			l.asking.decide()
		} else {
			l.perform(l.ballot.Next(nil))
		}
	case l.phase == asking:
		if !l.e.waiters[m.Index].wake(l.name) {
			l.asking.notified |= 1 << (m.Index % 64)
		}
	}
}

// handoffTrust returns until when a hand-off is trusted. Behind Sentinel and in a Cluster the sample of the clock may be
// another server's. A grant from after the latest that the clock can show means that it was set forward since.
func (e *Engine) handoffTrust(
	m *transport.Master, grantedAt int64, ttl time.Duration, now clock.Instant,
) (clock.Instant, bool) {
	latest, known := m.ServerAtMost(now)
	left := ttl - time.Duration(max(latest-grantedAt, 0))*time.Microsecond
	if !known || left <= 0 || grantedAt > latest || !m.Standalone() {
		return clock.Instant{}, false
	}
	return e.drift.Trusted(now, left), true
}

// onListen is called when messages of the master arrive from now on.
func (e *Engine) onListen(m *transport.Master) {
	e.deaf[m.Index].Store(nil)
	e.noteListening(m)
	e.waiters[m.Index].wakeAll()
	e.lookAgain()
}

func (e *Engine) noteListening(m *transport.Master) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard[m.Index] = true
	if !slices.Contains(e.heard, false) {
		e.listening.Store(true)
	}
}

// onDeaf is called when messages of the master cannot be had. Where that does not pass by itself, waiting would mean
// polling, in silence; so whoever waits is told.
func (e *Engine) onDeaf(m *transport.Master, err error) {
	if !m.Permanent(err) {
		return
	}
	e.deaf[m.Index].Store(&NodeFailure{Index: m.Index, Addr: m.Addr(), Err: err})
	cause := e.deafness()
	if cause == nil {
		return
	}
	e.failWaiters(Silent, cause)
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

// deafness returns why messages cannot be had from so many masters that no quorum is left.
func (e *Engine) deafness() error {
	var last error
	n := 0
	for i := range e.deaf {
		if f := e.deaf[i].Load(); f != nil {
			n, last = n+1, f
		}
	}
	if n > len(e.masters)-e.quorum() {
		return last
	}
	return nil
}
