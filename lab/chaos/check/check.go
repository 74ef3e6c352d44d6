// Package check judges a history by the promises of docs/guarantees.md.
package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// Violation is a promise that a history breaks.
type Violation struct {
	Rule     string
	Text     string
	Spans    []history.Span   // the evidence
	Accesses []history.Access // the same, of a register
	Holds    []history.Hold   // the same, of masters
}

// Slack is how far a busy machine may move the times of a history.
type Slack struct {
	Context time.Duration // how late an acquisition may return after its context has ended
	Healed  time.Duration // how long an acquisition may wait after all faults have ended
	Arrival time.Duration // how much earlier a call must begin to arrive first
	Settled time.Duration // how long after a fault its consequences last
	Back    time.Duration // how long before its deadline a lease needs its link
	Answer  time.Duration // how long an acquisition takes at least to find that there is no quorum
	Passed  time.Duration // the same, after a fault that only breaks connections
	Gone    time.Duration // how long a call that nothing hinders may need until a master has seen it
	Idle    time.Duration // how long a lock may stand idle: a waiter that missed a message asks again within a second
	Drift   float64       // how far the rates of clocks may differ
}

// Busy is the slack for a machine that runs servers and workers on few processors.
var Busy = Slack{
	Context: 1500 * time.Millisecond, Healed: 20 * time.Second, Arrival: 200 * time.Millisecond,
	Settled: 3 * time.Second, Back: 200 * time.Millisecond, Drift: 0.01,
	Answer: time.Second, Passed: time.Second, Gone: 500 * time.Millisecond, Idle: 1500 * time.Millisecond,
}

// Judgement is the violations of a history, and how many cases each rule has judged: those in which the promise held
// and could have been broken.
type Judgement struct {
	Violations []Violation
	Judged     map[string]int
}

// All judges a history by every rule.
func All(h *history.History, slack Slack) Judgement {
	j, shown := Judgement{Judged: map[string]int{}}, withoutCrowds(h)
	for _, rule := range []struct {
		name  string
		judge func() ([]Violation, int)
	}{
		{"exclusion", func() ([]Violation, int) { return Exclusion(h) }},
		{"backed", func() ([]Violation, int) { return Backed(shown) }},
		{"tokens", func() ([]Violation, int) { return Tokens(h) }},
		{"waits", func() ([]Violation, int) { return Waits(h, slack) }},
		{"order", func() ([]Violation, int) { return Order(h, slack) }},
		{"order in a process", func() ([]Violation, int) { return OrderInProcess(h, slack) }},
		{"told", func() ([]Violation, int) { return Told(h) }},
		{"available", func() ([]Violation, int) { return Available(h, slack) }},
		{"kept", func() ([]Violation, int) { return Kept(h, slack) }},
		{"abandoned", func() ([]Violation, int) { return Abandoned(shown, slack) }},
		{"prompt", func() ([]Violation, int) { return Prompt(shown, slack) }},
		{"idle", func() ([]Violation, int) { return Idle(shown, slack) }},
		{"minimum", func() ([]Violation, int) { return Minimum(h, slack.Drift) }},
		{"adopted", func() ([]Violation, int) { return Adopted(h) }},
		{"answers", func() ([]Violation, int) { return Answers(h, slack) }},
		{"register", func() ([]Violation, int) { return Register(h) }},
	} {
		found, judged := rule.judge()
		j.Violations, j.Judged[rule.name] = append(j.Violations, found...), judged
	}
	return j
}

// Exclusion finds two owners that trusted their holds of a lock at one moment, at least one of them for writing. A hold
// that an operator has freed at once does not count from then on.
func Exclusion(h *history.History) (found []Violation, judged int) {
	suspended := merge(h.Faults, func(f history.Fault) bool { return f.Excuses }, time.Duration(h.Run.TTL))
	for _, spans := range byName(h.Spans) {
		var open []history.Span
		for _, s := range spans {
			if s.End == "converted" && s.Kept && !s.Write && !isFreed(h.Breaks, s.Name, s.Last, s.Ended) {
				s.Last = s.Ended // no other client writes before it is the write lease
			}
			if s.Last = min(s.Last, freedAt(h.Breaks, s)); s.Last == 0 || s.Last < s.Granted {
				continue
			}
			if !suspended.touch(s.Called, s.Last) {
				judged++
			}
			open = slices.DeleteFunc(open, func(o history.Span) bool { return o.Last <= s.Granted })
			for _, o := range open {
				if o.Owner == s.Owner || !o.Write && !s.Write || suspended.touch(min(o.Called, s.Called), s.Granted) {
					continue
				}
				both := time.Duration(min(o.Last, s.Last) - s.Granted)
				if both <= 0 {
					continue
				}
				found = append(found, Violation{
					Rule: "exclusion", Text: fmt.Sprintf("%s: two owners held it for %v", s.Name, both),
					Spans: []history.Span{o, s},
				})
			}
			open = append(open, s)
		}
	}
	return found, judged
}

// freedAt returns when an operator began to free the hold of the span at once, or the end of time.
func freedAt(breaks []history.Break, s history.Span) int64 {
	at := int64(math.MaxInt64)
	for _, b := range breaks {
		if b.Now && b.Name == s.Name && (b.Token == s.Token || slices.Contains(b.Tokens, s.Token)) {
			at = min(at, b.Called)
		}
	}
	return at
}

// isFreed reports whether an operator has freed any hold of the lock at once in that time.
func isFreed(breaks []history.Break, name string, from, until int64) bool {
	return slices.ContainsFunc(breaks, func(b history.Break) bool {
		return b.Now && b.Name == name && b.Called > from && b.Called < until
	})
}

// Tokens finds tokens out of order: a write's token must be larger than every token that was reported before its
// acquisition began, a read's token larger than every write's, and no two writes may share one. A join has the token of
// the hold that it joins.
func Tokens(h *history.History) (found []Violation, judged int) {
	reordered := merge(h.Faults, func(f history.Fault) bool { return f.Reorders }, time.Duration(h.Run.TTL))
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
						Rule: "token twice", Text: fmt.Sprintf("%s: two writes have %d", name, s.Token),
						Spans: []history.Span{other, s},
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
			if reordered.touch(seen.Granted, s.Granted) {
				continue
			}
			judged++
			if seen.Token >= s.Token {
				found = append(found, Violation{
					Rule:  "token order",
					Text:  fmt.Sprintf("%s: %d was reported before the acquisition of %d began", name, seen.Token, s.Token),
					Spans: []history.Span{seen, s},
				})
			}
		}
	}
	return found, judged
}

// Waits finds acquisitions that outlast their context, and acquisitions that wait or fail although every fault has
// ended. The time in which processes of the run stood still does not count.
func Waits(h *history.History, slack Slack) (found []Violation, judged int) {
	stills := merge(h.Faults, func(f history.Fault) bool { return f.Kind == history.Still }, 0)
	for _, f := range h.Failures {
		if f.Form == history.Conversion {
			continue // its context began with the section, and a reader beside it is a reason to fail
		}
		late := time.Duration(f.Ended-f.Called-f.Limit) - stoodStill(h, f.Process, f.Called, f.Ended)
		if late > slack.Context && f.Cause != "closed" {
			found = append(found, Violation{Rule: "context", Text: fmt.Sprintf(
				"%s: %s of process %d returned %v after its context had ended: %s", f.Name, f.Form, f.Process, late, f.Err)})
		}
		broken := f.Cause == "broken" && isBroken(h.Breaks, f.Name, f.Ended)
		if f.Called > h.Run.Healed && time.Duration(f.Limit) >= slack.Healed && f.Cause != "closed" && !broken {
			found = append(found, Violation{Rule: "healed", Text: fmt.Sprintf(
				"%s: %s of process %d failed %v after the last fault: %s", f.Name, f.Form, f.Process,
				time.Duration(f.Ended-h.Run.Healed), f.Err)})
		}
	}
	for _, s := range h.Spans {
		since := max(s.Called, h.Run.Healed)
		if waited := time.Duration(s.Granted-since) - stills.within(since, s.Granted); waited > slack.Healed {
			found = append(found, Violation{
				Rule: "healed", Text: fmt.Sprintf("%s: granted %v after the last fault", s.Name, waited),
				Spans: []history.Span{s},
			})
		}
	}
	return found, len(h.Failures) + len(h.Spans)
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

// periods are times in order, none of which touches another.
type periods []struct{ from, until int64 }

// merge returns the times of the faults that count, with the time after each of them.
func merge(faults []history.Fault, counts func(history.Fault) bool, after time.Duration) (all periods) {
	for _, f := range slices.SortedFunc(slices.Values(faults), func(a, b history.Fault) int {
		return cmp.Compare(a.From, b.From)
	}) {
		if !counts(f) {
			continue
		}
		until := f.Until + int64(after)
		if n := len(all); n > 0 && f.From <= all[n-1].until {
			all[n-1].until = max(all[n-1].until, until)
			continue
		}
		all = append(all, struct{ from, until int64 }{f.From, until})
	}
	return all
}

// touch reports whether one of the times has a moment in common with the given one.
func (p periods) touch(from, until int64) bool {
	i, _ := slices.BinarySearchFunc(p, from, func(one struct{ from, until int64 }, at int64) int {
		return cmp.Compare(one.until, at)
	})
	for i < len(p) && p[i].until <= from {
		i++
	}
	return i < len(p) && p[i].from < until
}

// within returns how much of the given time they are.
func (p periods) within(from, until int64) (sum time.Duration) {
	for _, one := range p {
		sum += time.Duration(max(0, min(one.until, until)-max(one.from, from)))
	}
	return sum
}

// stoodStill returns how much of the time the process stood still.
func stoodStill(h *history.History, process int, from, until int64) (sum time.Duration) {
	for _, f := range h.Faults {
		if f.Process == process && f.Kind == history.Still && f.From < until && f.Until > from {
			sum += time.Duration(min(f.Until, until) - max(f.From, from))
		}
	}
	return sum
}
