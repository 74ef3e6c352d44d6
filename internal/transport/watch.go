package transport

import (
	"sync/atomic"
	"time"
)

// A Cluster is asked for its slots now and then while calls go out, and soon after something has spoken for a change;
// looks that find none grow rarer. Who the master of a Sentinel group is, the client knows: that costs nothing.
const (
	slotsEvery   = 5 * time.Second
	slotsGap     = 50 * time.Millisecond
	slotsGapMost = 500 * time.Millisecond
	addressEvery = 250 * time.Millisecond
	addressSoon  = 10 * time.Millisecond
	dialLeads    = 2 * time.Second // a client dials a new master, and asks for its role, before it uses it
)

// topology follows which servers answer for a master: the owners of a Cluster's slots, the master of a Sentinel group.
type topology struct {
	m *Master
	// watched is the master's address at the last look. The first is before any call, or a server that takes its place
	// at once would be taken for the first.
	watched string
	slots   atomic.Pointer[slotMap] // of a Cluster, once they are known
	doubt   chan struct{}           // asks for a look at which servers there are
	used    atomic.Bool             // since the last look
	plain   atomic.Bool             // a Cluster without sharded messages
}

// suspect asks for a look at which servers there are.
func (t *topology) suspect() {
	select {
	case t.doubt <- struct{}{}:
	default:
	}
}

// watch follows the servers that answer, where they can change, until the engine gives up on the masters.
func (t *topology) watch() {
	if t.m.cluster() {
		t.watchSlots()
	} else {
		t.watchAddress()
	}
}

func (t *topology) watchSlots() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	gap := slotsGap
	for t.m.cfg.Life.Err() == nil {
		known, changed := t.learnSlots()
		t.used.Store(false)
		if changed {
			gap = slotsGap
		}
		timer.Reset(gap)
		select {
		case <-timer.C:
		case <-t.m.cfg.Life.Done():
			return
		}
		gap = min(2*gap, slotsGapMost)
		if known && t.calm(timer) {
			gap = slotsGap
		}
	}
}

// calm waits until a look is due, and reports whether that is for no special reason.
func (t *topology) calm(timer *time.Timer) bool {
	for {
		timer.Reset(slotsEvery)
		select {
		case <-t.doubt:
			return false
		case <-timer.C:
			if t.used.Load() {
				return true
			}
		case <-t.m.cfg.Life.Done():
			return true
		}
	}
}

// watchAddress sees it when the client has gone over to another server.
func (t *topology) watchAddress() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var soonUntil time.Duration
	for {
		every := addressEvery
		if t.m.cfg.Clock.Now().Mono < soonUntil {
			every = addressSoon
		}
		timer.Reset(every)
		_, _, dialled := t.m.lastDials()
		select {
		case <-timer.C:
		case <-t.doubt:
			soonUntil = t.m.cfg.Clock.Now().Mono + dialLeads
		case <-dialled:
			soonUntil = t.m.cfg.Clock.Now().Mono + dialLeads
		case <-t.m.cfg.Life.Done():
			return
		}
		if now := t.m.Addr(); now != t.watched {
			t.watched = now
			t.m.home.replaced()
			t.m.home.listener.look()
			t.m.cfg.OnMoved(t.m)
		}
	}
}
