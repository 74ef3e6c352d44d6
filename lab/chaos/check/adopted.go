package check

import (
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// Adopted finds tickets that were adopted twice, and adopters without a larger token. A master that decides alone may
// have a hold again after it has lost data.
func Adopted(h *history.History) (found []Violation, judged int) {
	lost := merge(h.Faults, func(f history.Fault) bool { return f.Excuses || f.Reorders }, time.Duration(h.Run.TTL))
	first := map[string]history.Span{}
	for _, s := range h.Spans {
		if s.Ticket == "" || s.End == "converted" {
			continue
		}
		judged++
		if s.Token <= s.From {
			found = append(found, Violation{
				Rule: "adopted", Text: fmt.Sprintf("%s: %d has adopted %d", s.Name, s.Token, s.From), Spans: []history.Span{s},
			})
		}
		other, twice := first[s.Ticket]
		if twice && !lost.touch(min(other.Called, s.Called), max(other.Granted, s.Granted)) {
			found = append(found, Violation{
				Rule: "adopted", Text: fmt.Sprintf("%s: the ticket of %d was adopted twice", s.Name, s.From),
				Spans: []history.Span{other, s},
			})
		}
		first[s.Ticket] = s
	}
	return found, judged
}
