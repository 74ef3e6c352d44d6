package check

import (
	"cmp"
	"fmt"
	"math"
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
		if at := unbacked(holds, h.Run.Masters, s.Granted, last); at >= 0 {
			found = append(found, Violation{
				Rule: "backed", Spans: []history.Span{s}, Holds: holds,
				Text: fmt.Sprintf("%s: trusted for %v after its grant, at the most; after %v no quorum had the hold", s.Name,
					time.Duration(last-s.Granted), time.Duration(at-s.Granted)),
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

// unbacked returns the first moment of the time at which no quorum of masters has one of the holds, or -1.
func unbacked(holds []history.Hold, masters int, from, until int64) int64 {
	type change struct {
		at     int64
		master int
		by     int
	}
	var changes []change
	for _, hold := range holds {
		changes = append(changes, change{hold.From, hold.Master, 1}, change{hold.Until, hold.Master, -1})
	}
	changes = append(changes, change{math.MaxInt64, 0, 0})
	slices.SortFunc(changes, func(a, b change) int { // a hold that follows another one at once leaves no gap
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.by, a.by))
	})
	standing, has, at := map[int]int{}, 0, int64(math.MinInt64)
	for _, c := range changes {
		if has <= masters/2 && c.at > from && at < until && c.at > at {
			return max(at, from)
		}
		at = c.at
		before := standing[c.master]
		standing[c.master] += c.by
		switch {
		case before == 0 && c.by > 0:
			has++
		case before == 1 && c.by < 0:
			has--
		}
	}
	return -1
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
