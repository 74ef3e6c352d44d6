package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// Minimum finds locks that were granted before the minimum of the hold before was over. That counts from the grant by
// the server's clock, which is not before the call. Masters that forget, an operator, and a loss because the hold is
// gone end a minimum.
func Minimum(h *history.History, drift float64) (found []Violation, judged int) {
	forgotten := merge(h.Faults, endsHolds, time.Duration(h.Run.TTL))
	for _, spans := range byName(h.Spans) {
		for i, s := range spans {
			if s.MinHold == 0 || s.Reason == "gone" {
				continue
			}
			until := s.Called + s.MinHold - int64(drift*float64(s.MinHold)) - int64(2*time.Millisecond)
			broken := slices.ContainsFunc(h.Breaks, func(b history.Break) bool { return b.Name == s.Name && b.Token == s.Token })
			ended := broken || slices.ContainsFunc(h.Breaks, func(b history.Break) bool {
				return b.Name == s.Name && b.Token == 0 && b.Called > s.Called && b.Called < until // of an ended hold
			})
			if ended || forgotten.touch(s.Called, until) {
				continue
			}
			judged++
			for _, o := range spans[i+1:] {
				if o.Granted >= until {
					break
				}
				if o.Write || s.Write {
					found = append(found, Violation{
						Rule: "minimum", Text: fmt.Sprintf("%s: granted again %v before the minimum of %v was over", s.Name,
							time.Duration(until-o.Granted), time.Duration(s.MinHold)),
						Spans: []history.Span{s, o},
					})
					break
				}
			}
		}
	}
	return found, judged
}
