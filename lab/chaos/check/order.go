package check

import (
	"fmt"
	"iter"
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
		for o := range overtakings(spans) {
			if faults.touch(o.first.Called, o.first.Granted) {
				continue
			}
			judged++
			if o.lead() > slack.Arrival &&
				!answeredLate(h, []history.Span{o.first}).touch(o.first.Called, o.second.Called) {
				found = append(found, o.violation(fmt.Sprintf("%s: a waiter", name)))
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
		for o := range overtakings(spans) {
			judged++
			if o.lead() > slack.Arrival && stoodStill(h, q.process, o.first.Called, o.second.Called) < slack.Arrival/2 {
				found = append(found, o.violation(fmt.Sprintf("%s: a goroutine of process %d", q.name, q.process)))
			}
		}
	}
	return found, judged
}

// overtaking is two calls that waited at one time and excluded each other. The second was granted first.
type overtaking struct{ first, second history.Span }

// overtakings finds them among spans in the order of their grants.
func overtakings(spans []history.Span) iter.Seq[overtaking] {
	return func(yield func(overtaking) bool) {
		for i, first := range spans {
			for _, second := range slices.Backward(spans[:i]) {
				if second.Granted <= first.Called {
					break
				}
				if (first.Write || second.Write) && !yield(overtaking{first, second}) {
					return
				}
			}
		}
	}
}

// lead is how much earlier the first had called. It is negative where the second was first in both.
func (o overtaking) lead() time.Duration { return time.Duration(o.second.Called - o.first.Called) }

func (o overtaking) violation(who string) Violation {
	return Violation{
		Rule: "order", Text: fmt.Sprintf("%s that had come %v later was granted first", who, o.lead()),
		Spans: []history.Span{o.first, o.second},
	}
}
