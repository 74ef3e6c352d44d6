package engine

import (
	"container/heap"
	"sync"
	"time"
)

// ringer is told when its alarm is due. It must not block: one goroutine rings for the whole engine.
type ringer interface{ ring(now instant) }

// alarm is one entry of a schedule, embedded in whatever it wakes.
type alarm struct {
	at    time.Duration
	index int // in the heap, 1-based; 0 is not set
	owner ringer
}

// suspensionCheck bounds how long a jump of the wall clock goes unnoticed while an alarm is set: the timer below
// counts monotonic time, which stands still in a suspended machine.
const suspensionCheck = time.Second

// schedule rings alarms in order from a single goroutine: every deadline, renewal, refresh and retry of an engine.
type schedule struct {
	clock Clock
	jump  func(now instant) // told when the wall clock ran ahead of the monotonic one

	mu     sync.Mutex
	heap   alarmHeap
	wakeAt time.Duration // when the goroutine looks next
	kick   chan struct{}
}

const never = time.Duration(1<<63 - 1)

func newSchedule(clock Clock, jump func(instant)) *schedule {
	return &schedule{clock: clock, jump: jump, wakeAt: never, kick: make(chan struct{}, 1)}
}

// set moves the alarm to a moment, of the monotonic clock.
func (s *schedule) set(a *alarm, owner ringer, at time.Duration) {
	s.put(a, owner, at, false)
}

// hasten sets the alarm unless it is set for an earlier moment.
func (s *schedule) hasten(a *alarm, owner ringer, at time.Duration) {
	s.put(a, owner, at, true)
}

func (s *schedule) put(a *alarm, owner ringer, at time.Duration, onlyEarlier bool) {
	s.mu.Lock()
	if onlyEarlier && a.index != 0 && a.at <= at {
		s.mu.Unlock()
		return
	}
	a.at, a.owner = at, owner
	if a.index == 0 {
		heap.Push(&s.heap, a)
	} else {
		heap.Fix(&s.heap, a.index-1)
	}
	early := at < s.wakeAt
	if early {
		s.wakeAt = at
	}
	s.mu.Unlock()
	if early {
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
}

// cancel takes the alarm out; a ring that is under way may still come.
func (s *schedule) cancel(a *alarm) {
	s.mu.Lock()
	if a.index != 0 {
		heap.Remove(&s.heap, a.index-1)
	}
	s.mu.Unlock()
}

// run rings until stop is closed.
func (s *schedule) run(stop <-chan struct{}) {
	timer := time.NewTimer(never)
	defer timer.Stop()
	last := s.clock.now()
	var due []ringer
	for {
		now := s.clock.now()
		if ahead := now.wall.Sub(last.wall) - (now.mono - last.mono); ahead > rounding {
			s.jump(now)
		}
		last = now
		due = s.due(now.mono, due[:0])
		for _, r := range due {
			r.ring(now)
		}
		if len(due) > 0 {
			continue
		}
		timer.Reset(s.pause(now.mono))
		select {
		case <-timer.C:
		case <-s.kick:
		case <-stop:
			return
		}
	}
}

func (s *schedule) due(now time.Duration, into []ringer) []ringer {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.heap) > 0 && s.heap[0].at <= now {
		into = append(into, heap.Pop(&s.heap).(*alarm).owner)
	}
	return into
}

func (s *schedule) pause(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeAt = never
	if len(s.heap) == 0 {
		return never
	}
	s.wakeAt = min(s.heap[0].at, now+suspensionCheck)
	return max(s.wakeAt-now, 0)
}

type alarmHeap []*alarm

func (h alarmHeap) Len() int           { return len(h) }
func (h alarmHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *alarmHeap) Push(x any) {
	a := x.(*alarm)
	*h = append(*h, a)
	a.index = len(*h)
}

func (h *alarmHeap) Pop() any {
	old := *h
	a := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	a.index = 0
	return a
}
