package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// Backed finds moments at which a client trusted a lock although fewer than a quorum of masters had that hold. A master
// that has lost the hold counts until it would have expired: such masters abstain for that long.
func Backed(h *history.History) (found []Violation, judged int) {
	if len(h.Holds) == 0 {
		return nil, 0
	}
	suspended := merge(h.Faults, func(f history.Fault) bool { return f.Excuses }, time.Duration(h.Run.TTL))
	byName := map[string][]history.Hold{}
	for _, hold := range h.Holds {
		byName[hold.Name] = append(byName[hold.Name], hold)
	}
	for _, s := range h.Spans {
		holds := slices.DeleteFunc(slices.Clone(byName[s.Name]), func(hold history.Hold) bool { return !gives(hold, s) })
		last := s.Last
		for _, b := range h.Breaks { // from when an operator began to free its hold
			if b.Now && slices.ContainsFunc(holds, func(hold history.Hold) bool { return hold.ID == b.Hold }) {
				last = min(last, b.Called)
			}
		}
		if last == 0 || last < s.Granted || suspended.touch(s.Called, last) {
			continue
		}
		judged++
		without := countTimes(holds, s.Granted, max(last, s.Granted+1), func(having int) bool {
			return having <= h.Run.Masters/2
		})
		if len(without) > 0 {
			found = append(found, Violation{
				Rule: "backed", Spans: []history.Span{s}, Holds: holds,
				Text: fmt.Sprintf("%s: trusted for %v after its grant, at the most; after %v no quorum had the hold", s.Name,
					time.Duration(last-s.Granted), time.Duration(without[0].from-s.Granted)),
			})
		}
	}
	return found, judged
}

// gives reports whether the hold gives its client what the span says.
func gives(hold history.Hold, s history.Span) bool {
	first := hold.Token
	if hold.Block > 0 {
		first = hold.Token - min(hold.Token, hold.Block) + 1
	}
	return s.Token >= first && s.Token <= hold.Token && (hold.Write || !s.Write) &&
		hold.From <= s.Ended && hold.Until > s.Called
}

// withoutCrowds returns the history without the locks that had too many records to be shown.
func withoutCrowds(h *history.History) *history.History {
	crowds := map[string]bool{}
	for _, o := range h.Holds {
		if o.Crowd {
			crowds[o.Name] = true
		}
	}
	if len(crowds) == 0 {
		return h
	}
	known := *h
	known.Holds = slices.DeleteFunc(slices.Clone(h.Holds), func(o history.Hold) bool { return crowds[o.Name] })
	known.Spans = slices.DeleteFunc(slices.Clone(h.Spans), func(s history.Span) bool { return crowds[s.Name] })
	known.Failures = slices.DeleteFunc(slices.Clone(h.Failures), func(f history.Failure) bool { return crowds[f.Name] })
	return &known
}
