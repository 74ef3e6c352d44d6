package check

import (
	"fmt"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// Told finds holders that knew that their lock was lost, by its context or its deadline, and whose release reported
// success.
func Told(h *history.History) (found []Violation, judged int) {
	for _, s := range h.Spans {
		if s.Over == 0 || s.Bounded || s.Joined || s.End == "converted" || s.End == "detached" {
			continue
		}
		judged++
		if s.End == "released" {
			found = append(found, Violation{
				Rule: "told", Text: fmt.Sprintf("%s: released without an error after a loss", s.Name), Spans: []history.Span{s},
			})
		}
	}
	return found, judged
}
