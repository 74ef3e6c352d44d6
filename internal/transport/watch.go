package transport

import "time"

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

// suspect asks for a look at which servers there are.
func (m *Master) suspect() {
	select {
	case m.doubt <- struct{}{}:
	default:
	}
}

// watch follows the servers that answer, where they can change, until the engine gives up on the masters.
func (m *Master) watch() {
	if m.cluster() {
		m.watchSlots()
	} else {
		m.watchAddress()
	}
}

func (m *Master) watchSlots() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	gap := slotsGap
	for m.cfg.Life.Err() == nil {
		known, changed := m.learnSlots()
		m.used.Store(false)
		if changed {
			gap = slotsGap
		}
		timer.Reset(gap)
		select {
		case <-timer.C:
		case <-m.cfg.Life.Done():
			return
		}
		gap = min(2*gap, slotsGapMost)
		if known && m.calm(timer) {
			gap = slotsGap
		}
	}
}

// calm waits until a look is due, and reports whether that is for no special reason.
func (m *Master) calm(timer *time.Timer) bool {
	for {
		timer.Reset(slotsEvery)
		select {
		case <-m.doubt:
			return false
		case <-timer.C:
			if m.used.Load() {
				return true
			}
		case <-m.cfg.Life.Done():
			return true
		}
	}
}

// watchAddress sees it when the client has gone over to another server.
func (m *Master) watchAddress() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	addr := m.Addr()
	var soonUntil time.Duration
	for {
		every := addressEvery
		if m.cfg.Clock.Now().Mono < soonUntil {
			every = addressSoon
		}
		timer.Reset(every)
		_, _, dialled := m.lastDials()
		select {
		case <-timer.C:
		case <-m.doubt:
			soonUntil = m.cfg.Clock.Now().Mono + dialLeads
		case <-dialled:
			soonUntil = m.cfg.Clock.Now().Mono + dialLeads
		case <-m.cfg.Life.Done():
			return
		}
		if now := m.Addr(); now != addr {
			addr = now
			m.home.replaced()
			m.home.listener.look()
			m.cfg.OnMoved(m)
		}
	}
}
