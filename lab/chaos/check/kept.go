package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// Kept finds leases that were lost although they could have been renewed: since some time before the loss, no fault
// struck the process or its links to a quorum of masters that had kept their data. Where a master has lost its data, no
// fault may have struck the others for longer: the hold may have been on a bare quorum, and be regained only now. A
// master that does not count for the lease is as one out of reach; only the loss itself names it. A master that
// answered the process late may have answered its renewals late. A process may notice a loss some time after the hold
// has expired.
func Kept(h *history.History, slack Slack) (found []Violation, judged int) {
	faults, expiry := slices.Concat(h.Faults, h.Slow), map[grant]int64{}
	for _, o := range h.Holds {
		of := grant{o.Name, o.Token}
		expiry[of] = max(expiry[of], o.Until)
	}
	for _, s := range h.Spans {
		if until, ok := expiry[grant{s.Name, s.Token}]; ok {
			s.Lost = min(s.Lost, until)
		}
		// The reply that granted it must have come in time too.
		if s.Lost == 0 || s.Bounded || s.Joined || s.Lost-s.Granted < int64(slack.Back) || wasLate(s) {
			continue
		}
		judged++
		if s.Reason == "broken" && isBroken(h.Breaks, s.Name, s.Lost) || isFreed(h.Breaks, s.Name, s.Called, s.Lost) {
			continue
		}
		since := min(s.Called, s.Lost-h.Run.TTL) - int64(slack.Settled) // a section may use an older lease of its process
		from := s.Lost - int64(slack.Back)
		for _, f := range h.Faults {
			if endsHolds(f) && f.From < s.Lost && f.Until > since {
				from = min(from, f.From-int64(slack.Settled))
			}
		}
		reached := 0
		for master := range h.Run.Masters {
			if !slices.ContainsFunc(faults, func(f history.Fault) bool {
				if h.Run.Masters > 1 && passing[f.Kind] { // the marker is read over a new connection first
					f.Until += int64(slack.Back)
				}
				return hinders(f, s, master, from, since)
			}) {
				reached++
			}
		}
		if reached-uncounted(s) > h.Run.Masters/2 {
			found = append(found, Violation{
				Rule:  "kept",
				Text:  fmt.Sprintf("%s: lost (%s) with %d of %d masters in reach", s.Name, s.Reason, reached, h.Run.Masters),
				Spans: []history.Span{s},
			})
		}
	}
	return found, judged
}

// isBroken reports whether an operator has broken a hold of this lock before that time.
func isBroken(breaks []history.Break, name string, before int64) bool {
	return slices.ContainsFunc(breaks, func(b history.Break) bool { return b.Name == name && b.Called < before })
}

// wasLate reports whether the loss names its own process as late. It was late for less than a fault of kind still then,
// but on a machine that busy the servers may have been late, too, and they do not say so.
func wasLate(s history.Span) bool { return strings.Contains(s.Err, "this process was busy or paused") }

// uncounted returns how many of several masters did not count for the lost lease: they were out of reach at its grant,
// or had been started from a save of another set, and have no vote.
func uncounted(s history.Span) int {
	return strings.Count(s.Err, ": does not have the hold") + strings.Count(s.Err, ": has no vote")
}

// hinders reports whether the fault keeps the lease from being renewed on the master after from, or has ended its hold
// there after since. Where any process stood still, the machine may have been too busy for all of them.
func hinders(f history.Fault, s history.Span, master int, from, since int64) bool {
	if f.From > s.Lost || f.Masters != nil && !slices.Contains(f.Masters, master) ||
		f.Workers != nil && !slices.Contains(f.Workers, s.Slot) {
		return false
	}
	return f.Until > from || endsHolds(f) && f.Until > since
}

func endsHolds(f history.Fault) bool { return f.Forgets || f.Excuses }
