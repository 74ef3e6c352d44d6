package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// room is where this process waits for one lock on one master. It refreshes all its waiters in one call, and asks
// again early where an expiry may let somebody in. It is guarded by its master's mutex, which is taken under a
// lease's mutex and never the other way round.
type room struct {
	m       *master
	keys    []string
	waiters map[*Lease]struct{}
	alarm   alarm
	busy    bool // a refresh is under way
	stale   bool // and there is news that it may be too old for
}

// line puts the lease into the master's room, under the lease's mutex. wake is when asking again can tell something
// new; 0 is not known.
func (l *Lease) line(m *master, wake time.Duration) {
	if !l.waits {
		l.waits = true
		l.e.counters.waiting.Add(1)
		if hook := l.e.cfg.Hooks.Waiting; hook != nil {
			l.later = append(l.later, func() { hook(l) })
		}
		for i, other := range l.e.masters {
			if other != m && l.slots[i].standing == granted { // the grants so far are to be kept
				other.enterRoom(l, 0)
				other.sub.start()
			}
		}
	}
	m.enterRoom(l, wake)
	m.sub.start()
}

func (m *master) enterRoom(l *Lease, wake time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rooms[l.name]
	if r == nil {
		r = &room{m: m, keys: m.e.sent(&l.keys), waiters: make(map[*Lease]struct{})}
		m.rooms[l.name] = r
	}
	r.waiters[l] = struct{}{}
	r.arm(m.e.clock.now().mono, wake)
}

func (m *master) leaveRoom(l *Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rooms[l.name]
	if r == nil {
		return
	}
	if delete(r.waiters, l); len(r.waiters) == 0 {
		delete(m.rooms, l.name)
		m.e.schedule.cancel(&r.alarm)
	}
}

// wakeRooms makes every waiter ask again: a connection was lost and with it perhaps messages, or the server changed.
func (m *master) wakeRooms() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rooms {
		m.e.schedule.set(&r.alarm, r, m.e.clock.now().mono)
	}
}

func (m *master) wakeRoom(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.rooms[name]; r != nil {
		m.e.schedule.hasten(&r.alarm, r, m.e.clock.now().mono)
	}
}

// arm sets the next ring: a refresh is due, or an expiry may have let somebody in, whichever is sooner; but a master
// that rests is not asked before its time.
func (r *room) arm(now, wake time.Duration) {
	if len(r.waiters) == 0 {
		return
	}
	pause := never
	for l := range r.waiters {
		pause = min(pause, l.terms.refreshEvery())
	}
	if wake > 0 {
		pause = min(pause, wake+time.Millisecond) // the server counts whole milliseconds
	}
	r.m.e.schedule.hasten(&r.alarm, r, max(now+pause, r.m.retryAt))
}

// ring refreshes the waiters that are queued here and asks for those that are not. The answers set the next ring; the
// one set here covers answers that never come.
func (r *room) ring(now instant) {
	m := r.m
	m.mu.Lock()
	waiters := slices.SortedFunc(maps.Keys(r.waiters), func(a, b *Lease) int { return cmp.Compare(a.begun.mono, b.begun.mono) })
	resting, busy := now.mono < m.retryAt, r.busy
	r.stale = r.stale || busy
	if resting && len(waiters) > 0 { // whoever asked it meanwhile and failed must not put these waiters off for another interval
		m.e.schedule.set(&r.alarm, r, m.retryAt)
		m.mu.Unlock()
		return
	}
	r.arm(now.mono, 0)
	m.mu.Unlock()
	var lined []*Lease
	var args []string
	for _, l := range waiters {
		switch hold, is := l.standing(m); {
		case is == queued && !busy:
			lined, args = append(lined, l), append(args, hold, l.terms.claimArg)
		case is == unasked || is == failed:
			l.askAgain(m, m.e.proposal(now))
		case is == granted:
			l.nudged(m)
		case is == yielding:
			l.yieldAgain(m, now)
		}
	}
	if len(lined) > 0 {
		r.refresh(lined, args, now)
	}
}

func (l *Lease) standing(m *master) (hold string, is standing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != asking {
		return l.hold, refused
	}
	return l.hold, l.slots[m.index].standing
}

func (l *Lease) askAgain(m *master, floor string) {
	hold, args := l.sending(m, floor, new([10]string))
	if hold == "" {
		return
	}
	m.lane.post(job{program: l.program(), keys: l.e.sent(&l.keys), args: args, done: func(result rueidis.RedisResult, sent instant) {
		l.receive(m, hold, readAnswer(result), sent)
	}})
}

func (r *room) refresh(lined []*Lease, args []string, now instant) {
	m := r.m
	m.mu.Lock()
	r.busy = true
	m.mu.Unlock()
	m.lane.post(job{program: m.e.programs.refresh, keys: r.keys, args: m.e.args(now, args...), done: func(result rueidis.RedisResult, sent instant) {
		wake, again := r.refreshed(lined, args, result, sent)
		m.mu.Lock()
		defer m.mu.Unlock()
		again = again || r.stale
		r.busy, r.stale = false, false
		r.arm(m.e.clock.now().mono, wake)
		if again && len(r.waiters) > 0 {
			m.e.schedule.set(&r.alarm, r, m.e.clock.now().mono)
		}
	}})
}

// refreshed hands each waiter its part of the reply. It returns when the next expiry can come, and whether some waiter
// must ask anew: the master dropped it or lost its data.
func (r *room) refreshed(lined []*Lease, holds []string, result rueidis.RedisResult, sent instant) (wake time.Duration, again bool) {
	fields, err := readRefresh(result, len(lined))
	if err != nil {
		for _, l := range lined {
			l.refreshFailed(r.m, err)
		}
		return 0, false
	}
	r.m.sample(sent, fields[0])
	for i, l := range lined {
		f := fields[2+3*i:]
		again = l.refreshed(r.m, holds[2*i], f[0], fencing.Token(f[1]), time.Duration(f[2])*time.Millisecond, sent) || again
	}
	return time.Duration(fields[1]) * time.Millisecond, again
}

func readRefresh(result rueidis.RedisResult, waiters int) ([]int64, error) {
	fields, err := result.AsIntSlice()
	if err == nil && len(fields) != 2+3*waiters {
		err = fmt.Errorf("malformed reply of %d fields", len(fields))
	}
	return fields, err
}

// The statuses of refresh.lua beside those of acquire.lua.
const refreshUnknown = 2

func (l *Lease) refreshed(m *master, hold string, status int64, token fencing.Token, left time.Duration, sent instant) (again bool) {
	l.mu.Lock()
	defer l.unlock()
	s := &l.slots[m.index]
	if hold != l.hold || l.phase != asking {
		return false
	}
	s.err = nil
	switch status {
	case statusGranted:
		l.granted(m, token, l.e.drift.trusted(sent, left), true)
		l.decide()
	case refreshUnknown:
		if s.standing == queued {
			s.standing = unasked
			return true
		}
	}
	return false
}

// refreshFailed leaves the waiter in its place, which it keeps if a later refresh comes in time.
func (l *Lease) refreshFailed(m *master, err error) {
	l.mu.Lock()
	defer l.unlock()
	l.slots[m.index].err = err
	if isPermanent(err, m.client.Mode()) {
		l.slots[m.index].standing = failed
		l.decide()
	}
}
