package check

import (
	"slices"
	"time"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// passing are the faults that strike messages or connections and leave both sides as they were: a client that is told
// at once that its connection has gone opens another one, and repeats what it has to.
var passing = map[string]bool{
	"cut": true, "lose-reply": true, "lose-command": true, "stray": true, "kill-clients": true, "kill-listeners": true,
	"run-twice": true, "duplicate-messages": true, "script-flush": true,
}

// after returns how long after a fault its consequences last.
func (s Slack) after(f history.Fault, ttl int64) int64 {
	switch {
	case endsHolds(f):
		return int64(s.Settled) + ttl*3/2 // its quarantine
	case passing[f.Kind]:
		return int64(s.Passed)
	default:
		return int64(s.Settled)
	}
}

// inReach returns how many masters no fault kept from answering a call as they should, and whether these are enough. Of
// the span it reads the slot, and Lost as the end of the call. A fault before the call counts until its consequences
// have ended. New masters do not vote at once; and they become a set only while none of them is unfit to be in it.
func inReach(
	h *history.History, faults []history.Fault, call history.Span, got string, slack Slack,
) (masters int, enough bool) {
	settledSince := call.Called - int64(slack.Settled)
	votesSince := settledSince - int64(h.Run.TTL)*3/2 // after its quarantine
	for master := range h.Run.Masters {
		if !slices.ContainsFunc(faults, func(f history.Fault) bool {
			since := settledSince
			if endsHolds(f) {
				since = votesSince
			}
			return hinders(f, call, master, since, since)
		}) {
			masters++
		}
	}
	if h.Run.Masters > 1 && h.Run.Began > votesSince {
		return masters, masters == h.Run.Masters && isOfMasters(got)
	}
	return masters, masters > h.Run.Masters/2
}

// isOfMasters reports whether an acquisition ended with what the masters are, and not with a vote that they withheld.
func isOfMasters(got string) bool { return got == "conflict" || got == "option" }

// newMasters returns what a run over several masters begins with: all of them are new, and in quarantine as after a
// loss of their data. A single master has no quarantine.
func newMasters(h *history.History) []history.Fault {
	if h.Run.Masters < 2 {
		return nil
	}
	return []history.Fault{{From: h.Run.Began, Until: h.Run.Began, Forgets: true}}
}

// strikesWorker reports whether the fault strikes the process in that slot, or what it sends.
func strikesWorker(f history.Fault, slot int) bool {
	return f.Workers == nil || slices.Contains(f.Workers, slot)
}

// strikesMaster reports whether the fault strikes that master, or what it is sent.
func strikesMaster(f history.Fault, master int) bool {
	return f.Masters == nil || slices.Contains(f.Masters, master)
}

// mostStill is how long processes may stand still while something is judged. On a busy machine all of them stand still
// for a moment now and then, and each has to run twice until a message has an effect.
const mostStill = time.Second / 2

// answeredLate returns when masters answered a process of these clients late.
func answeredLate(h *history.History, clients []history.Span) periods {
	return merge(h.Slow, func(f history.Fault) bool {
		return slices.ContainsFunc(clients, func(s history.Span) bool { return strikesWorker(f, s.Slot) })
	}, 0)
}

// standstills returns when processes of the run stood still: any of them may keep the rest waiting.
func standstills(h *history.History) periods {
	return merge(h.Faults, func(f history.Fault) bool { return f.Kind == history.Still }, 0)
}
