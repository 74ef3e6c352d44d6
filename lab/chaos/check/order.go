package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// Order finds waiters that were overtaken: of two waiters for a lock the one that called later was granted first, and
// the two could not have the lock together. It is judged only where no fault strikes, nor the consequences of one: a
// waiter whose process or server fails may lose its place, and a master in quarantine gives none. The calls of a
// process that is answered late may arrive late. Over a quorum the order of the clients' clocks decides, which is the
// order of the calls on one machine.
func Order(h *history.History, slack Slack) (found []Violation, judged int) {
	faults := merge(slices.Concat(h.Faults, newMasters(h)), func(f history.Fault) bool {
		// A process that stands still for less time keeps its place, and the slack covers its late arrival.
		return f.Kind != history.Still || f.Until-f.From > int64(slack.Arrival)/2
	}, slack.Settled)
	for name, spans := range byName(h.Spans) {
		spans = slices.DeleteFunc(spans, func(s history.Span) bool { return !s.Queued || s.Form == mutex })
		for i, first := range spans {
			if faults.touch(first.Called, first.Granted) {
				continue
			}
			for _, second := range slices.Backward(spans[:i]) {
				if second.Granted <= first.Called {
					break
				}
				if !first.Write && !second.Write {
					continue
				}
				judged++
				lead := time.Duration(second.Called - first.Called)
				if lead > slack.Arrival && !answeredLate(h, spans[i:i+1]).touch(first.Called, second.Called) {
					found = append(found, Violation{
						Rule: "order", Text: fmt.Sprintf("%s: a waiter that had come %v later was granted first", name, lead),
						Spans: []history.Span{first, second},
					})
				}
			}
		}
	}
	return found, judged
}

// The forms of an RWMutex, and of several locks at once.
const mutex, many = "mutex", "many"

// OrderInProcess finds goroutines that were overtaken by another one of their process at an RWMutex that they share.
// Faults change nothing about that order, but for a process that stands still between a call and its place in the
// queue.
func OrderInProcess(h *history.History, slack Slack) (found []Violation, judged int) {
	type queue struct {
		process int
		name    string
	}
	queues := map[queue][]history.Span{}
	for name, spans := range byName(h.Spans) {
		for _, s := range spans {
			if s.Queued && s.Form == mutex {
				queues[queue{s.Process, name}] = append(queues[queue{s.Process, name}], s)
			}
		}
	}
	for q, spans := range queues {
		for i, first := range spans {
			for _, second := range slices.Backward(spans[:i]) {
				if second.Granted <= first.Called {
					break
				}
				if !first.Write && !second.Write {
					continue
				}
				judged++
				lead := time.Duration(second.Called - first.Called)
				if lead > slack.Arrival && stoodStill(h, q.process, first.Called, second.Called) < slack.Arrival/2 {
					found = append(found, Violation{
						Rule: "order", Text: fmt.Sprintf("%s: a goroutine of process %d that had come %v later was granted first",
							q.name, q.process, lead),
						Spans: []history.Span{first, second},
					})
				}
			}
		}
	}
	return found, judged
}
