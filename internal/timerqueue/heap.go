package timerqueue

import "time"

// timerHeap is a heap of timers by their moments, four children to a node. Each timer knows its place. The moments are
// stored beside the pointers, so that moving one timer among thousands touches few of the others' memory.
type timerHeap []entry

type entry struct {
	at    time.Duration
	timer *Timer
}

const children = 4

// set adds the timer, or moves it to another moment.
func (h *timerHeap) set(t *Timer, at time.Duration) {
	if t.index == 0 {
		*h = append(*h, entry{})
		h.up(len(*h)-1, entry{at, t})
		return
	}
	h.fix(t.index-1, entry{at, t})
}

// remove takes out the timer in this place.
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

// fix puts an entry into a free place, and from there to where it belongs.
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
