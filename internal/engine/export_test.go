package engine

import "time"

// Trusted computes the deadline of a lease that was asked for at the origin of both clocks.
func Trusted(factor float64, left time.Duration) (monotonic, wall time.Duration) {
	origin := instant{0, time.Unix(1_000_000_000, 0)}
	i := drift(factor).trusted(origin, left)
	return i.mono, i.wall.Sub(origin.wall)
}

// Passed reports whether a deadline has passed at a moment; both are of both clocks, from one origin.
func Passed(deadline, monotonic, wall time.Duration) bool {
	origin := time.Unix(1_000_000_000, 0)
	return instant{deadline, origin.Add(deadline)}.passed(instant{monotonic, origin.Add(wall)})
}

// Alarm is one alarm of a Schedule.
type Alarm struct {
	alarm
	Ring func(at time.Duration)
}

func (a *Alarm) ring(now instant) { a.Ring(now.mono) }

// Schedule is the schedule of an engine.
type Schedule struct{ s *schedule }

// NewSchedule returns a schedule that tells jump of a wall clock that has run ahead.
func NewSchedule(clock Clock, jump func()) Schedule {
	return Schedule{newSchedule(clock, func(instant) { jump() })}
}

func (s Schedule) Set(a *Alarm, at time.Duration)    { s.s.set(&a.alarm, a, at) }
func (s Schedule) Hasten(a *Alarm, at time.Duration) { s.s.hasten(&a.alarm, a, at) }
func (s Schedule) Cancel(a *Alarm)                   { s.s.cancel(&a.alarm) }
func (s Schedule) Run(stop <-chan struct{})          { s.s.run(stop) }

// Registered is what an engine keeps a note of.
type Registered struct{ Leases, Cleanups, Rooms, Alarms int }

// Registered counts the notes.
func (e *Engine) Registered() Registered {
	var r Registered
	e.mu.Lock()
	r.Leases, r.Cleanups = len(e.leases), len(e.cleanups)
	e.mu.Unlock()
	for _, m := range e.masters {
		m.mu.Lock()
		r.Rooms += len(m.rooms)
		m.mu.Unlock()
	}
	e.schedule.mu.Lock()
	r.Alarms = len(e.schedule.heap)
	e.schedule.mu.Unlock()
	return r
}
