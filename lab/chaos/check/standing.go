package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// Abandoned finds holds that stood although no client had them: long after the call that released them had returned, or
// without a client from their beginning. It is judged from when no fault hinders their release any more.
func Abandoned(h *history.History, slack Slack) (found []Violation, judged int) {
	stills := standstills(h)
	spans, byToken, shared := byName(h.Spans), map[grant][]history.Span{}, sharedTokens(h.Holds)
	for _, s := range h.Spans {
		byToken[grant{s.Name, s.Token}] = append(byToken[grant{s.Name, s.Token}], s)
	}
	for _, holds := range byID(h.Holds) {
		if len(spans[holds[0].Name]) == 0 {
			continue // its clients record no spans
		}
		planned := slices.ContainsFunc(holds, func(o history.Hold) bool {
			return o.Ends || o.Lost || o.Until >= h.Run.Ended
		})
		if planned || len(quorumTimes(holds, h.Run.Masters)) == 0 {
			continue
		}
		of := grant{holds[0].Name, holds[0].Token}
		all := byToken[of]
		if len(holds) > 1 || holds[0].Block > 0 { // it may have had several tokens
			all = spans[of.name]
		}
		client, since := lastClient(all, holds, h.Run.TTL/4)
		alike := slices.ContainsFunc(holds, func(o history.Hold) bool { return shared[grant{o.Name, o.Token}] })
		if len(client) == 0 {
			holds = withLastToken(holds) // before its masters agree on a token, its client has nothing to release
		}
		if len(client) == 0 || alike {
			since = max(since, endOfSeveral(h.Failures, holds))
		}
		if since == math.MaxInt64 {
			continue
		}
		by := client
		if alike {
			by = nil // the spans may be of another hold with the same token
		}
		alones := quorumTimes(unhindered(h, holds, by, since, slack), h.Run.Masters)
		if len(alones) > 0 || holds[len(holds)-1].Until <= since+int64(slack.Gone) {
			judged++
		}
		for _, alone := range alones {
			late := time.Duration(alone.until - alone.from)
			if late <= slack.Gone {
				continue
			}
			stood := max(stills.within(alone.from, alone.until), answeredLate(h, client).within(alone.from, alone.until))
			if stood <= mostStill && late > slack.Gone+2*stood {
				found = append(found, Violation{
					Rule: "abandoned", Spans: client, Holds: holds,
					Text: fmt.Sprintf("%s: hold %s stood for %v without a client", holds[0].Name, holds[0].ID, late),
				})
				break
			}
		}
	}
	return found, judged
}

// lastClient returns the clients of a hold, and since when it has none: the end of time if one of them has not released
// it. A release that goes on in the background is done when faults are over. An RWMutex may linger.
func lastClient(spans []history.Span, holds []history.Hold, linger int64) (client []history.Span, since int64) {
	for _, s := range spans {
		if !slices.ContainsFunc(holds, func(o history.Hold) bool { return gives(o, s) }) {
			continue
		}
		client = append(client, s)
		switch {
		case s.End != "released" && !(s.End == "unconfirmed" && strings.Contains(s.Err, "continues in the background")):
			since = math.MaxInt64
		case holds[0].Block > 0:
			since = max(since, s.Ended+linger)
		default:
			since = max(since, s.Ended)
		}
	}
	return client, since
}

// withLastToken returns the holds that have the largest token of them.
func withLastToken(holds []history.Hold) []history.Hold {
	last := slices.MaxFunc(holds, func(a, b history.Hold) int { return cmp.Compare(a.Token, b.Token) }).Token
	return slices.DeleteFunc(slices.Clone(holds), func(o history.Hold) bool { return o.Token != last })
}

// endOfSeveral returns when the last call has failed that may have had the hold while it waited for more: for other
// locks, or for readers of its process.
func endOfSeveral(failures []history.Failure, holds []history.Hold) (at int64) {
	for _, f := range failures {
		waited := f.Form == many || f.Form == history.Conversion && f.Name == holds[0].Name
		if waited && slices.ContainsFunc(holds, func(o history.Hold) bool {
			return f.Called < o.From && o.From < f.Ended
		}) {
			at = max(at, f.Ended)
		}
	}
	return at
}

// unhindered returns the parts of the holds after since in which nothing hinders their clients, or any process if none
// is known, from releasing them.
func unhindered(
	h *history.History, holds []history.Hold, client []history.Span, since int64, slack Slack,
) (parts []history.Hold) {
	for _, o := range holds {
		o.From = max(o.From, since)
		for _, f := range h.Faults {
			if f.Kind == history.Still || f.From > o.Until || !strikesMaster(f, o.Master) {
				continue
			}
			concerns := len(client) == 0
			for _, s := range client {
				concerns = concerns || strikesWorker(f, s.Slot)
			}
			if concerns {
				after := slack.after(f, h.Run.TTL)
				if !passing[f.Kind] {
					after += h.Run.TTL // of a process that was killed
				}
				o.From = max(o.From, f.Until+after)
			}
		}
		if o.From < o.Until {
			parts = append(parts, o)
		}
	}
	return parts
}

// Prompt finds waiters that heard of their hold long after a quorum of masters had granted it, which no fault kept
// from telling them. It is not judged of the goroutines that share a hold, which have it one after the other.
func Prompt(h *history.History, slack Slack) (found []Violation, judged int) {
	faults := merge(h.Faults, func(history.Fault) bool { return true }, slack.Settled)
	stills, shared := standstills(h), sharedTokens(h.Holds)
	byName := map[string][][]history.Hold{}
	for _, holds := range byID(h.Holds) {
		byName[holds[0].Name] = append(byName[holds[0].Name], holds)
	}
	for _, s := range h.Spans {
		if s.Joined || s.Form == many || s.Granted-s.Called < int64(slack.Gone) {
			continue
		}
		most := slack.Gone
		if faults.touch(s.Called, s.Granted) { // a message may be lost
			most = slack.Idle
		}
		for _, holds := range byName[s.Name] {
			if shared[grant{s.Name, holds[0].Token}] {
				continue
			}
			holds = slices.DeleteFunc(slices.Clone(holds), func(o history.Hold) bool { return o.Block > 0 || !gives(o, s) })
			known := quorumTimes(holds, h.Run.Masters)
			if len(known) == 0 || known[0].from < s.Called {
				continue
			}
			for _, held := range quorumTimes(unhindered(h, holds, []history.Span{s}, 0, slack), h.Run.Masters) {
				if held.from > s.Granted || held.until < s.Granted {
					continue
				}
				judged++
				late, stood := time.Duration(s.Granted-held.from), stills.within(held.from, s.Granted)
				if stood <= mostStill && late > most+2*stood {
					found = append(found, Violation{
						Rule: "prompt", Spans: []history.Span{s}, Holds: holds,
						Text: fmt.Sprintf("%s: a caller heard of its grant %v later", s.Name, late),
					})
				}
			}
		}
	}
	return found, judged
}

// Idle finds calls that waited, or gave up waiting, although nothing kept a quorum of masters from granting the lock:
// no hold, and no fault that has struck the process or its links to them.
func Idle(h *history.History, slack Slack) (found []Violation, judged int) {
	if len(h.Holds) == 0 {
		return nil, 0
	}
	type place struct {
		name string
		slot int
	}
	idle, stills := map[place]periods{}, standstills(h)
	judge := func(at place, form string, from, until int64, spans ...history.Span) {
		stood := stills.within(from, until)
		if form == many || time.Duration(until-from) < slack.Idle+2*stood || stood > mostStill {
			return
		}
		if _, ok := idle[at]; !ok {
			idle[at] = idleTimes(h, at.name, at.slot, slack)
		}
		judged++
		for _, free := range idle[at] {
			if d := time.Duration(min(free.until, until) - max(free.from, from)); d > slack.Idle+2*stood {
				found = append(found, Violation{
					Rule: "idle", Spans: spans,
					Text: fmt.Sprintf("%s: free for %v while a %s waited, for %v in all",
						at.name, d, form, time.Duration(until-from)),
				})
			}
		}
	}
	for _, s := range h.Spans {
		judge(place{s.Name, s.Slot}, s.Form, s.Called, s.Granted, s)
	}
	for _, f := range h.Failures {
		if f.Cause == "contended" {
			judge(place{f.Name, f.Slot}, f.Form, f.Called, f.Ended)
		}
	}
	return found, judged
}

// idleTimes returns when a quorum of masters had no hold of the lock, and could reach the process in that slot.
func idleTimes(h *history.History, name string, slot int, slack Slack) periods {
	var busy []history.Hold
	for _, o := range h.Holds {
		if o.Name == name {
			busy = append(busy, o)
		}
	}
	for _, f := range slices.Concat(h.Faults, newMasters(h)) {
		for master := range h.Run.Masters {
			if f.Kind != history.Still && strikesWorker(f, slot) && strikesMaster(f, master) {
				busy = append(busy, history.Hold{
					Master: master, From: f.From - int64(slack.Back), Until: f.Until + slack.after(f, h.Run.TTL),
				})
			}
		}
	}
	return countTimes(busy, h.Run.Began, h.Run.Ended, func(having int) bool {
		return h.Run.Masters-having > h.Run.Masters/2
	})
}

// grant is a token of a lock.
type grant struct {
	name  string
	token uint64
}

// sharedTokens returns the tokens that several holds had: some were joined, or readers entered together.
func sharedTokens(holds []history.Hold) map[grant]bool {
	first, shared := map[grant]string{}, map[grant]bool{}
	for _, o := range holds {
		of := grant{o.Name, o.Token}
		if id, ok := first[of]; ok && id != o.ID {
			shared[of] = true
		}
		first[of] = o.ID
	}
	return shared
}

// byID returns the holds of each id, in the order of their grants.
func byID(all []history.Hold) map[string][]history.Hold {
	ids := map[string][]history.Hold{}
	for _, o := range all {
		ids[o.ID] = append(ids[o.ID], o)
	}
	for _, holds := range ids {
		slices.SortFunc(holds, func(a, b history.Hold) int { return cmp.Compare(a.From, b.From) })
	}
	return ids
}

// quorumTimes returns when at least a quorum of masters had one of the holds.
func quorumTimes(holds []history.Hold, masters int) periods {
	return countTimes(holds, math.MinInt64, math.MaxInt64, func(having int) bool { return having > masters/2 })
}

// countTimes returns when the number of masters that had one of the holds was as wanted.
func countTimes(holds []history.Hold, from, until int64, wanted func(having int) bool) (all periods) {
	type change struct {
		at         int64
		master, by int
	}
	changes := []change{{until, -1, 0}}
	for _, o := range holds {
		if o.From < o.Until {
			changes = append(changes, change{o.From, o.Master, 1}, change{o.Until, o.Master, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { // a hold that follows another one at once leaves no gap
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.by, a.by))
	})
	standing, having := map[int]int{}, 0
	for _, c := range changes {
		if at := min(c.at, until); wanted(having) && at > from {
			if n := len(all); n > 0 && all[n-1].until == from {
				all[n-1].until = at
			} else {
				all = append(all, struct{ from, until int64 }{from, at})
			}
		}
		before := standing[c.master]
		standing[c.master] += c.by
		having += min(standing[c.master], 1) - min(before, 1)
		from = max(from, min(c.at, until))
	}
	return all
}
