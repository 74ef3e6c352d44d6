package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// Available finds acquisitions that got no quorum although a quorum of masters was in reach: no fault had struck these,
// nor the process or its links to them, since some time before the call. An acquisition with little time is not judged:
// on a busy machine an answer takes some. It had little time, too, for a lock that was held until shortly before its
// end: masters that grant it at once may mint different tokens, and one more call makes them equal. Nor is one of
// several locks, which may have had little time for the last of them, nor a conversion, for its readers. That masters
// belong to different sets, or cannot be used, is an answer: no option of a section is wrong by itself.
func Available(h *history.History, slack Slack) (found []Violation, judged int) {
	for _, f := range h.Failures {
		late := f.Ended - int64(slack.Answer)
		unusable := isOfMasters(f.Cause)
		if !unusable && (f.Cause != "no quorum" || f.Called > late || f.Form == many || f.Form == history.Conversion ||
			wasHeld(h, f.Name, late, f.Ended)) {
			continue
		}
		judged++
		call := history.Span{Slot: f.Slot, Called: f.Called, Lost: f.Ended}
		if reached, enough := inReach(h, h.Faults, call, f.Cause, slack); enough {
			found = append(found, Violation{Rule: "available", Text: fmt.Sprintf(
				"%s: %s of process %d failed after %v, with %d of %d masters in reach: %s", f.Name, f.Form, f.Process,
				time.Duration(f.Ended-f.Called), reached, h.Run.Masters, f.Err)})
		}
	}
	return found, judged
}

// wasHeld reports whether a master has seen the end of a hold of the lock in that time.
func wasHeld(h *history.History, name string, from, until int64) bool {
	return slices.ContainsFunc(h.Holds, func(o history.Hold) bool {
		return o.Name == name && o.Until > from && o.Until <= until
	})
}
