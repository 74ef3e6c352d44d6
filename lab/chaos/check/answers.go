package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// Answers finds calls that did not return what their caller could foresee, or not in time. What holds only where no
// fault strikes is judged where none had struck the process or its links to a quorum for a while, as in Available, and
// where nothing stood still.
func Answers(h *history.History, slack Slack) (found []Violation, judged int) {
	for _, a := range h.Answers {
		if a.Got == "closed" { // its caller has closed the locker
			continue
		}
		text := ""
		switch took := a.Ended - a.Called; {
		case slices.Contains(a.Never, a.Got):
			text = "which no fault excuses"
		case a.Want == nil && a.Within == 0 || !isCalm(h, a, slack):
			if len(a.Never) == 0 {
				continue
			}
		case a.Got == "no quorum" && took < int64(slack.Answer): // a busy machine may take longer than a call waits
		case a.Want != nil && !slices.Contains(a.Want, a.Got):
			text = fmt.Sprintf("instead of %v", a.Want)
		case a.Within > 0 && took > a.Within:
			text = fmt.Sprintf("after %v instead of %v", time.Duration(took), time.Duration(a.Within))
		}
		if judged++; text != "" {
			found = append(found, Violation{Rule: "answers", Text: fmt.Sprintf(
				"%s: %s of process %d returned %q, %s: %s", a.Name, a.Call, a.Process, a.Got, text, a.Err)})
		}
	}
	return found, judged
}

// isCalm reports whether nothing can have kept a quorum from answering the call, or from having answered the calls
// shortly before it.
func isCalm(h *history.History, a history.Answer, slack Slack) bool {
	faults, back := make([]history.Fault, 0, 16), slack.Back
	if a.Got == "lost" { // before the call, perhaps
		back = slack.Settled
	}
	for _, f := range h.Faults {
		switch {
		case f.Kind != history.Still:
			faults = append(faults, f)
		case f.Process != 0 && f.Process != a.Process: // no other process uses the name
		case f.From < a.Ended && f.Until > a.Called-int64(back):
			return false
		}
	}
	if a.Local {
		return true
	}
	call := history.Span{Slot: a.Slot, Called: a.Called, Lost: a.Ended}
	_, enough := inReach(h, faults, call, a.Got, slack)
	return enough
}
