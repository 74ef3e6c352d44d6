package transport

import (
	"sync/atomic"
	"time"
)

// The slots of a Cluster are fetched periodically while calls go out, and soon after a sign of a change. Fetches that
// find no change become less frequent. The client knows the master of a Sentinel group, so looking it up costs nothing.
const (
	slotsEvery   = 5 * time.Second
	slotsGap     = 50 * time.Millisecond
	slotsGapMost = 500 * time.Millisecond
	addressEvery = 250 * time.Millisecond
	addressSoon  = 10 * time.Millisecond
	dialLeads    = 2 * time.Second // a client dials a new master, and asks for its role, before it uses it
)

// topology tracks which servers answer for a master: the owners of a Cluster's slots, the master of a Sentinel group.
type topology struct {
	m *Master
	// watched is the master's address at the last look. The first look is before any call. Otherwise a server that
	// replaced the first one immediately would be taken for the first.
	watched string
	slots   atomic.Pointer[slotMap] // of a Cluster, once they are known
	doubt   chan struct{}           // requests a look at the servers
	used    atomic.Bool             // since the last look
	plain   atomic.Bool             // a Cluster without sharded messages
}

// suspect requests a look at the servers.
func (t *topology) suspect() {
	select {
	case t.doubt <- struct{}{}:
	default:
	}
}

// watch tracks the servers that answer, if they can change, until the engine gives up on the masters.
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

// calm waits until a look is due, and reports whether the look is periodic.
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

// watchAddress detects when the client has switched to another server.
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
