// Package check judges a history by the promises of docs/guarantees.md.
package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/chaos/history"
)

// Violation is a promise that a history breaks.
type Violation struct {
	Rule  string
	Text  string
	Spans []history.Span // the evidence
}

// Slack is how late a call may return after its context has ended, or a lock be granted after the last fault, on a
// machine that is busy with the run itself.
type Slack struct {
	Context time.Duration // of an acquisition that failed
	Healed  time.Duration // of an acquisition that waits after all faults have ended
}

// All returns every violation.
func All(h *history.History, slack Slack) []Violation {
	var all []Violation
	all = append(all, Exclusion(h)...)
	all = append(all, Tokens(h)...)
	all = append(all, Waits(h, slack)...)
	return all
}

// Exclusion finds two owners that trusted their holds of a lock at one moment, at least one of them for writing.
func Exclusion(h *history.History) []Violation {
	var found []Violation
	for _, spans := range byName(h.Spans) {
		var open []history.Span
		for _, s := range spans {
			if s.Last == 0 {
				continue
			}
			open = slices.DeleteFunc(open, func(o history.Span) bool { return o.Last <= s.Granted })
			for _, o := range open {
				if o.Owner == s.Owner || !o.Write && !s.Write || excused(h, min(o.Called, s.Called), s.Granted) {
					continue
				}
				both := time.Duration(min(o.Last, s.Last) - s.Granted)
				if both <= 0 {
					continue
				}
				found = append(found, Violation{
					"exclusion", fmt.Sprintf("%s: two owners held it for %v", s.Name, both),
					[]history.Span{o, s},
				})
			}
			open = append(open, s)
		}
	}
	return found
}

// Tokens finds tokens out of order: a write's token must be larger than every token that was reported before its
// acquisition began, a read's token larger than every write's, and no two writes may share one. A join has the token of
// the hold that it joins.
func Tokens(h *history.History) []Violation {
	var found []Violation
	for name, spans := range byName(h.Spans) {
		spans = slices.DeleteFunc(spans, func(s history.Span) bool { return s.Joined })
		writers := map[uint64]history.Span{}
		// The largest tokens of the first n spans, in the order of their reports.
		largest, largestWrite := make([]history.Span, len(spans)+1), make([]history.Span, len(spans)+1)
		for i, s := range spans {
			largest[i+1], largestWrite[i+1] = larger(largest[i], s), largestWrite[i]
			if s.Write {
				largestWrite[i+1] = larger(largestWrite[i], s)
				if other, ok := writers[s.Token]; ok {
					found = append(found, Violation{
						"token twice", fmt.Sprintf("%s: two writes have %d", name, s.Token),
						[]history.Span{other, s},
					})
				}
				writers[s.Token] = s
			}
		}
		for _, s := range spans {
			before, _ := slices.BinarySearchFunc(spans, s.Called, func(o history.Span, at int64) int {
				return cmp.Compare(o.Granted, at)
			})
			seen := largestWrite[before]
			if s.Write {
				seen = largest[before]
			}
			if seen.Token >= s.Token && !excused(h, seen.Granted, s.Granted) {
				found = append(found, Violation{
					"token order",
					fmt.Sprintf("%s: %d was reported before the acquisition of %d began", name, seen.Token, s.Token),
					[]history.Span{seen, s},
				})
			}
		}
	}
	return found
}

// Waits finds acquisitions that outlast their context, and acquisitions that wait or fail although every fault has
// ended.
func Waits(h *history.History, slack Slack) []Violation {
	var found []Violation
	for _, f := range h.Failures {
		late := time.Duration(f.Ended-f.Called-f.Limit) - stoodStill(h, f.Process, f.Called, f.Ended)
		if late > slack.Context && f.Cause != "closed" {
			found = append(found, Violation{"context", fmt.Sprintf(
				"%s: %s of process %d returned %v after its context had ended: %s", f.Name, f.Form, f.Process, late, f.Err), nil})
		}
		if f.Called > h.Run.Healed && time.Duration(f.Limit) >= slack.Healed && f.Cause != "closed" {
			found = append(found, Violation{"healed", fmt.Sprintf(
				"%s: %s of process %d failed %v after the last fault: %s", f.Name, f.Form, f.Process,
				time.Duration(f.Ended-h.Run.Healed), f.Err), nil})
		}
	}
	for _, s := range h.Spans {
		if waited := time.Duration(s.Granted - max(s.Called, h.Run.Healed)); waited > slack.Healed {
			found = append(found, Violation{
				"healed",
				fmt.Sprintf("%s: granted %v after the last fault", s.Name, waited),
				[]history.Span{s},
			})
		}
	}
	return found
}

// byName returns the spans of each lock in the order of their grants.
func byName(spans []history.Span) map[string][]history.Span {
	all := map[string][]history.Span{}
	for _, s := range spans {
		all[s.Name] = append(all[s.Name], s)
	}
	for _, of := range all {
		slices.SortStableFunc(of, func(a, b history.Span) int { return cmp.Compare(a.Granted, b.Granted) })
	}
	return all
}

func larger(a, b history.Span) history.Span {
	if b.Token > a.Token {
		return b
	}
	return a
}

// excused reports whether a fault that suspends the promises touches the time.
func excused(h *history.History, from, until int64) bool {
	return slices.ContainsFunc(h.Faults, func(f history.Fault) bool {
		return f.Excuses && f.From < until && f.Until+h.Run.TTL > from
	})
}

// stoodStill returns how much of the time the process stood still.
func stoodStill(h *history.History, process int, from, until int64) (sum time.Duration) {
	for _, f := range h.Faults {
		if f.Process == process && f.Kind == "still" && f.From < until && f.Until > from {
			sum += time.Duration(min(f.Until, until) - max(f.From, from))
		}
	}
	return sum
}
