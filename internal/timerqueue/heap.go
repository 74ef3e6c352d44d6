package timerqueue

import "time"

// timerHeap is a heap of timers ordered by time, with four children per node. Each timer stores its index. The times
// are stored next to the pointers, so that moving one timer among thousands touches little of the other timers' memory.
type timerHeap []entry

type entry struct {
	at    time.Duration
	timer *Timer
}

const children = 4

// set adds the timer, or moves it to another time.
func (h *timerHeap) set(t *Timer, at time.Duration) {
	if t.index == 0 {
		*h = append(*h, entry{})
		h.up(len(*h)-1, entry{at, t})
		return
	}
	h.fix(t.index-1, entry{at, t})
}

// remove removes the timer at index i.
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
