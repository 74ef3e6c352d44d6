// Package timerqueue fires any number of timers in order from a single goroutine: every deadline, renewal, refresh and
// retry of a locker.
package timerqueue

import (
	"slices"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/clock"
)

// Target is called when its timer is due. It must not block: one goroutine serves the whole queue.
type Target interface{ Fire(now clock.Instant) }

// Timer is one entry of a Queue, embedded in the value that it fires. Its zero value is not set. The queue's mutex
// guards it.
type Timer struct {
	index  int // in the heap, from 1; 0 is not set
	target Target
}

// suspensionCheck bounds how long a jump of the wall clock goes unnoticed while a timer is set: the runtime's timers
// count monotonic time, which stands still in a suspended machine.
const suspensionCheck = time.Second

// Queue holds timers by the monotonic clock.
type Queue struct {
	clock clock.Clock
	jump  func(now clock.Instant) // called when the wall clock ran ahead of the monotonic one
	last  clock.Instant           // the last reading, compared with the next one; belongs to Run

	mu     sync.Mutex
	timers timerHeap
	delays []delay       // each later than the one before it, and smaller
	wakeAt time.Duration // when the goroutine wakes next
	kick   chan struct{}
}

// delay is how late the queue fired a timer.
type delay struct{ at, by time.Duration }

const (
	delayMin   = time.Millisecond // smaller delays are usual
	delaysMost = 16
)

// New returns a queue. jump is called when the machine has been suspended or its wall clock was set forward since New.
func New(c clock.Clock, jump func(now clock.Instant)) *Queue {
	return &Queue{clock: c, jump: jump, last: c.Now(), wakeAt: clock.Never, kick: make(chan struct{}, 1)}
}

// Set sets the timer to a time of the monotonic clock.
func (q *Queue) Set(t *Timer, target Target, at time.Duration) {
	q.mu.Lock()
	if t.target = target; t.index == 0 {
		q.timers = append(q.timers, entry{})
		q.timers.up(len(q.timers)-1, entry{at, t})
	} else {
		q.timers.fix(t.index-1, entry{at, t})
	}
	early := at < q.wakeAt
	if early {
		q.wakeAt = at
	}
	q.mu.Unlock()
	if early {
		select {
		case q.kick <- struct{}{}:
		default:
		}
	}
}

// Cancel removes the timer. A call of Fire that is in progress may still come.
func (q *Queue) Cancel(t *Timer) {
	q.mu.Lock()
	if t.index != 0 {
		q.timers.remove(t.index - 1)
	}
	q.mu.Unlock()
}

func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.timers)
}

// Delayed returns how late the queue has fired a timer since that time, at most, including a timer that is due and has
// not fired. While the queue was that late, the process may not have run its other goroutines either.
func (q *Queue) Delayed(since, now time.Duration) (by time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.timers) > 0 {
		by = max(0, now-q.timers[0].at)
	}
	for _, d := range q.delays {
		if d.at >= since {
			return max(by, d.by)
		}
	}
	return by
}

// noteDelay records how late the first timer is, under mu. A larger delay replaces the smaller ones before it.
func (q *Queue) noteDelay(now time.Duration) {
	by := now - q.timers[0].at
	if by < delayMin {
		return
	}
	kept := slices.IndexFunc(q.delays, func(d delay) bool { return d.by <= by })
	if kept < 0 {
		kept = len(q.delays)
	}
	q.delays = append(q.delays[:kept], delay{now, by})
	if len(q.delays) > delaysMost {
		q.delays = slices.Delete(q.delays, delaysMost-1, delaysMost) // the smallest before this one
	}
}

func (q *Queue) Run(stop <-chan struct{}) {
	timer := time.NewTimer(clock.Never)
	defer timer.Stop()
	var due []Target
	for {
		now := q.clock.Now()
		if ahead := (now.Wall - q.last.Wall) - (now.Mono - q.last.Mono); ahead > clock.Rounding {
			q.jump(now)
		}
		q.last = now
		due = q.takeDue(now.Mono, due[:0])
		for _, target := range due {
			target.Fire(now)
		}
		if len(due) > 0 {
			clear(due)
			continue
		}
		timer.Reset(q.pause(now.Mono))
		select {
		case <-timer.C:
		case <-q.kick:
		case <-stop:
			return
		}
	}
}

func (q *Queue) takeDue(now time.Duration, into []Target) []Target {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.timers) > 0 {
		q.noteDelay(now)
	}
	for len(q.timers) > 0 && q.timers[0].at <= now {
		into = append(into, q.timers.remove(0).target)
	}
	return into
}

func (q *Queue) pause(now time.Duration) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.timers) > 0:
		q.wakeAt = q.timers[0].at
	case q.wakeAt <= now || q.wakeAt == clock.Never:
		q.wakeAt = clock.Never
		return clock.Never
	default: // cancelled: the next one is mostly later, and then it wakes nobody
	}
	q.wakeAt = min(q.wakeAt, now+suspensionCheck)
	return max(q.wakeAt-now, 0)
}

// timerHeap is a heap of timers ordered by time, with four children per node. Each timer stores its index. The times
// are stored next to the pointers, so that moving one timer among thousands touches little of the other timers' memory.
type timerHeap []entry

type entry struct {
	at    time.Duration
	timer *Timer
}

const children = 4

func (h *timerHeap) remove(i int) *Timer {
	old := *h
	t, last := old[i].timer, old[len(old)-1]
	old[len(old)-1] = entry{}
	*h = old[:len(old)-1]
	if t.index = 0; last.timer != t {
		h.fix(i, last)
	}
	return t
}

// fix puts an entry into the free index i and moves it from there to its place.
func (h timerHeap) fix(i int, e entry) {
	if i > 0 && e.at < h[(i-1)/children].at {
		h.up(i, e)
	} else {
		h.down(i, e)
	}
}

func (h timerHeap) up(i int, e entry) {
	for i > 0 {
		parent := (i - 1) / children
		if h[parent].at <= e.at {
			break
		}
		h.put(i, h[parent])
		i = parent
	}
	h.put(i, e)
}

func (h timerHeap) down(i int, e entry) {
	for {
		first := i*children + 1
		if first >= len(h) {
			break
		}
		least := first
		for c := first + 1; c < min(first+children, len(h)); c++ {
			if h[c].at < h[least].at {
				least = c
			}
		}
		if e.at <= h[least].at {
			break
		}
		h.put(i, h[least])
		i = least
	}
	h.put(i, e)
}

func (h timerHeap) put(i int, e entry) {
	h[i] = e
	e.timer.index = i + 1
}
