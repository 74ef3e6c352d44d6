package check_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/lab/chaos/check"
	"github.com/seed74116694/fencelock/lab/chaos/history"
)

func span(owner string, write bool, token uint64, called, granted, last int64) history.Span {
	return history.Span{Name: "n", Owner: owner, Write: write, Token: token, Called: called, Granted: granted, Last: last}
}

// at is a time in seconds.
func at(seconds float64) int64 { return int64(seconds * float64(time.Second)) }

func TestExclusion(t *testing.T) {
	joined := span("a", true, 1, 12, 13, 18)
	joined.Joined = true
	upgraded, downgraded := span("a", false, 1, 0, 10, 12), span("a", true, 1, 0, 10, 12)
	upgraded.End, upgraded.Ended, downgraded.End, downgraded.Ended = "converted", 30, "converted", 30
	upgraded.Kept, downgraded.Kept = true, true
	for name, c := range map[string]struct {
		spans  []history.Span
		faults []history.Fault
		broken int
	}{
		"a writer before an upgrade":  {spans: []history.Span{upgraded, span("b", true, 2, 0, 20, 25)}, broken: 1},
		"a reader before a downgrade": {spans: []history.Span{downgraded, span("b", false, 2, 0, 20, 35)}},
		"two writers": {spans: []history.Span{
			span("a", true, 1, 0, 10, 20), span("b", true, 2, 0, 19, 30),
		}, broken: 1},
		"a reader in a write": {spans: []history.Span{
			span("a", true, 1, 0, 10, 50), span("b", false, 2, 0, 19, 30),
		}, broken: 1},
		"a writer in a read": {spans: []history.Span{
			span("a", false, 1, 0, 10, 50), span("b", true, 2, 0, 19, 30),
		}, broken: 1},
		"two readers": {spans: []history.Span{span("a", false, 1, 0, 10, 50), span("b", false, 2, 0, 19, 30)}},
		"a long one over several": {spans: []history.Span{
			span("a", false, 1, 0, 10, 90), span("b", false, 2, 0, 12, 13), span("c", true, 3, 0, 80, 85),
		}, broken: 1},
		"one after the other": {spans: []history.Span{
			span("a", true, 1, 0, 10, 20), span("b", true, 2, 0, 20, 30),
		}},
		"one owner": {spans: []history.Span{span("a", true, 1, 0, 10, 20), joined}},
		"it never looked": {spans: []history.Span{
			span("a", true, 1, 0, 10, 0), span("b", true, 2, 0, 12, 30),
		}},
		"a fault that excuses": {
			spans:  []history.Span{span("a", true, 1, 0, 10, 20), span("b", true, 2, 0, 19, 30)},
			faults: []history.Fault{{From: 15, Until: 16, Excuses: true}},
		},
		"a fault that does not": {
			spans:  []history.Span{span("a", true, 1, 0, 10, 20), span("b", true, 2, 0, 19, 30)},
			faults: []history.Fault{{From: 15, Until: 16}}, broken: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, _ := check.Exclusion(&history.History{Spans: c.spans, Faults: c.faults})
			require.Len(t, found, c.broken)
		})
	}
}

func TestTokens(t *testing.T) {
	joined := span("a", true, 5, 12, 13, 18)
	joined.Joined = true
	for name, c := range map[string]struct {
		first, second history.Span
		broken        int
	}{
		"they grow":            {first: span("a", true, 1, 0, 10, 20), second: span("b", true, 2, 20, 30, 40)},
		"a write goes back":    {first: span("a", true, 2, 0, 10, 20), second: span("b", true, 1, 20, 30, 40), broken: 1},
		"it had begun before":  {first: span("a", true, 2, 0, 10, 20), second: span("b", true, 1, 5, 30, 40)},
		"two writes share one": {first: span("a", true, 2, 0, 10, 20), second: span("b", true, 2, 5, 30, 40), broken: 1},
		"two reads share one":  {first: span("a", false, 2, 0, 10, 20), second: span("b", false, 2, 15, 30, 40)},
		"a read behind a read": {first: span("a", false, 3, 0, 10, 20), second: span("b", false, 2, 15, 30, 40)},
		"a read has a write's": {first: span("a", true, 3, 0, 10, 20), second: span("b", false, 3, 20, 30, 40), broken: 1},
		"a write has a read's": {first: span("a", false, 3, 0, 10, 20), second: span("b", true, 3, 20, 30, 40), broken: 1},
		"a join":               {first: span("a", true, 5, 0, 10, 20), second: joined},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history.History{Spans: []history.Span{c.first, c.second}}
			found, _ := check.Tokens(h)
			require.Len(t, found, c.broken)
		})
	}
}

func TestTokensAcrossAFault(t *testing.T) {
	h := &history.History{
		Spans:  []history.Span{span("a", true, 2, 0, 10, 20), span("b", true, 1, 20, 30, 40)},
		Faults: []history.Fault{{From: 15, Until: 16, Excuses: true}},
	}
	found, _ := check.Tokens(h)
	require.Len(t, found, 1, "it suspends exclusion alone")
	h.Faults[0].Reorders = true
	found, judged := check.Tokens(h)
	require.Empty(t, found)
	require.Equal(t, 1, judged)
}

func TestOrder(t *testing.T) {
	queued := func(write bool, called, granted float64) history.Span {
		s := span("", write, 1, at(called), at(granted), at(granted))
		s.Queued = true
		return s
	}
	once := queued(true, 2, 3)
	once.Queued = false
	for name, c := range map[string]struct {
		spans          []history.Span
		faults, slow   []history.Fault
		masters        int // that are new
		judged, broken int
	}{
		"in order":          {spans: []history.Span{queued(true, 1, 4), queued(true, 2, 5)}, judged: 1},
		"overtaken":         {spans: []history.Span{queued(true, 1, 4), queued(true, 2, 3)}, judged: 1, broken: 1},
		"a reader overtook": {spans: []history.Span{queued(true, 1, 4), queued(false, 2, 3)}, judged: 1, broken: 1},
		"a reader was overtaken": {
			spans: []history.Span{queued(false, 1, 4), queued(true, 2, 3)}, judged: 1, broken: 1,
		},
		"two readers":          {spans: []history.Span{queued(false, 1, 4), queued(false, 2, 3)}},
		"nearly together":      {spans: []history.Span{queued(true, 1, 4), queued(true, 1.1, 3)}, judged: 1},
		"it came first":        {spans: []history.Span{queued(true, 1, 4), queued(true, 0, 3)}, judged: 1},
		"it was granted first": {spans: []history.Span{queued(true, 1, 4), queued(true, 0, 0.5)}},
		"it did not queue":     {spans: []history.Span{queued(true, 1, 4), once}},
		"a fault": {
			spans:  []history.Span{queued(true, 1, 4), queued(true, 2, 3)},
			faults: []history.Fault{{From: at(2), Until: at(2.5)}},
		},
		"a process stood still": {
			spans:  []history.Span{queued(true, 1, 4), queued(true, 2, 3)},
			faults: []history.Fault{{Kind: history.Still, From: at(2), Until: at(2.5)}},
		},
		"a process stood still for a moment": {
			spans:  []history.Span{queued(true, 1, 4), queued(true, 2, 3)},
			faults: []history.Fault{{Kind: history.Still, From: at(2), Until: at(2.09)}}, judged: 1, broken: 1,
		},
		"a process was answered late": {
			spans: []history.Span{queued(true, 1, 4), queued(true, 2, 3)},
			slow:  []history.Fault{{From: at(0.9), Until: at(1.4)}}, judged: 1,
		},
		"a process was answered late after that": {
			spans: []history.Span{queued(true, 1, 4), queued(true, 2, 3)},
			slow:  []history.Fault{{From: at(2.1), Until: at(3)}}, judged: 1, broken: 1,
		},
		"a fault just before": {
			spans:  []history.Span{queued(true, 1, 4), queued(true, 2, 3)},
			faults: []history.Fault{{From: at(-5), Until: at(-1)}},
		},
		"a fault long before": {
			spans:  []history.Span{queued(true, 1, 4), queued(true, 2, 3)},
			faults: []history.Fault{{From: at(-5), Until: at(-2)}}, judged: 1, broken: 1,
		},
		"on new masters": {spans: []history.Span{queued(true, 1, 4), queued(true, 2, 3)}, masters: 3},
		"on a new master": {
			spans: []history.Span{queued(true, 1, 4), queued(true, 2, 3)}, masters: 1, judged: 1, broken: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, judged := check.Order(&history.History{
				Run: history.Run{Masters: c.masters}, Spans: c.spans, Faults: c.faults, Slow: c.slow,
			}, check.Busy)
			require.Len(t, found, c.broken)
			require.Equal(t, c.judged, judged)
		})
	}
}

func TestKept(t *testing.T) {
	lost := history.Span{Name: "n", Process: 7, Slot: 1, Called: at(1), Granted: at(2), Lost: at(5)}
	bounded, late, bare, voteless, busy := lost, lost, lost, lost, lost
	busy.Err = "lost: 10.0.0.1:1: no reply in 121ms; this process was busy or paused, its timers were up to 70ms late"
	bare.Err = "lost: 10.0.0.1:1: no reply in 101ms; 10.0.0.2:1: does not have the hold"
	voteless.Err = "lost: 10.0.0.1:1: connection reset; 10.0.0.2:1: has no vote: it belongs to another set"
	bounded.Bounded, late.Granted = true, at(4.9)
	fault := func(from, until float64, master int) history.Fault {
		return history.Fault{From: at(from), Until: at(until), Masters: []int{master}}
	}
	forgets, elsewhere := fault(3, 3.1, 0), fault(4, 5, 0)
	forgetsToo := fault(4, 4.1, 2)
	forgetsToo.Forgets = true
	forgets.Forgets, elsewhere.Workers = true, []int{0}
	forgot := fault(-4, -3, 0)
	forgot.Forgets = true
	cut := fault(4.7, 4.7, 2)
	cut.Kind = "cut"
	before := []history.Fault{fault(0, 4, 0), fault(0, 4, 2)}
	slow := []history.Fault{fault(4, 4.9, 0), fault(4, 4.9, 2)}
	for name, c := range map[string]struct {
		span   history.Span
		faults []history.Fault
		slow   []history.Fault
		until  float64 // of its hold, if not 0
		broken int
	}{
		"it expired long before":        {span: lost, faults: before, until: 4.1},
		"it expired just before":        {span: lost, faults: before, until: 4.9, broken: 1},
		"without a fault":               {span: lost, broken: 1},
		"two answered late":             {span: lost, slow: slow},
		"one did":                       {span: lost, slow: slow[:1], broken: 1},
		"it ends by itself":             {span: bounded},
		"one master out of reach":       {span: lost, faults: []history.Fault{fault(4, 5, 0)}, broken: 1},
		"two masters out of reach":      {span: lost, faults: []history.Fault{fault(4, 5, 0), fault(4, 4.9, 2)}},
		"a new connection just before":  {span: lost, faults: []history.Fault{fault(4, 5, 0), cut}},
		"in reach in time":              {span: lost, faults: []history.Fault{fault(4, 5, 0), fault(4, 4.7, 2)}, broken: 1},
		"two of other workers":          {span: lost, faults: []history.Fault{elsewhere, fault(4, 5, 2)}, broken: 1},
		"one forgot the lease":          {span: lost, faults: []history.Fault{forgets}, broken: 1},
		"two did":                       {span: lost, faults: []history.Fault{forgets, forgetsToo}},
		"one did, one was out of reach": {span: lost, faults: []history.Fault{forgets, fault(2, 2.5, 2)}},
		"one forgot before":             {span: lost, faults: []history.Fault{forgot, fault(4, 5, 2)}, broken: 1},
		"a process stood still":         {span: lost, faults: []history.Fault{{Process: 7, From: at(4), Until: at(5)}}},
		"its process was late":          {span: busy},
		"it was granted too late":       {span: late},
		"one never had it":              {span: bare, faults: []history.Fault{fault(4, 5, 0)}},
		"one has no vote":               {span: voteless, faults: []history.Fault{fault(4, 5, 0)}},
		"one of three has no vote":      {span: voteless, broken: 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history.History{
				Run: history.Run{Masters: 3}, Spans: []history.Span{c.span}, Faults: c.faults, Slow: c.slow,
			}
			if c.until > 0 {
				h.Holds = []history.Hold{{Name: "n", From: at(2), Until: at(c.until)}}
			}
			found, _ := check.Kept(h, check.Busy)
			require.Len(t, found, c.broken)
		})
	}
}

func TestRegister(t *testing.T) {
	access := func(called, ended int64, read, wrote uint64) history.Access {
		return history.Access{Name: "n", Guard: history.Fenced, Called: called, Ended: ended, Read: read, Wrote: wrote}
	}
	refused, bare := access(2, 6, 0, 9), access(2, 6, 0, 9)
	refused.Refused, bare.Guard = true, ""
	var long, broken []history.Access // several chapters
	for i := range uint64(1000) {
		long = append(long, access(int64(10*i), int64(10*i+15), i, i+1)) // each overlaps the next one
		if i%7 == 0 {
			long[i].Ended = int64(10*i + 5)
		}
	}
	broken = append(slices.Clone(long), access(20_000, 20_001, 3, 0))
	for name, c := range map[string]struct {
		accesses []history.Access
		broken   int
	}{
		"one after the other":   {accesses: []history.Access{access(1, 2, 0, 5), access(3, 4, 5, 6)}},
		"a lost update":         {accesses: []history.Access{access(1, 4, 0, 5), access(2, 6, 0, 9)}, broken: 1},
		"the second is refused": {accesses: []history.Access{access(1, 4, 0, 5), refused}},
		"without a guard":       {accesses: []history.Access{access(1, 4, 0, 5), bare}},
		"a read inside a write": {accesses: []history.Access{access(1, 9, 0, 5), access(2, 2, 0, 0)}},
		"a read of the past": {
			accesses: []history.Access{access(1, 2, 0, 5), access(3, 4, 0, 0)}, broken: 1,
		},
		"a value from nowhere": {accesses: []history.Access{access(1, 2, 7, 0)}, broken: 1},
		"many":                 {accesses: long},
		"a stale read at last": {accesses: broken, broken: 1},
	} {
		t.Run(name, func(t *testing.T) {
			found, _ := check.Register(&history.History{Accesses: c.accesses})
			require.Len(t, found, c.broken)
			for _, v := range found {
				require.Equal(t, c.accesses[len(c.accesses)-1], v.Accesses[len(v.Accesses)-1])
			}
		})
	}
}

func TestLostUpdates(t *testing.T) {
	h := &history.History{Accesses: []history.Access{
		{Name: "n", Read: 1, Wrote: 2},
		{Name: "n", Read: 1, Wrote: 3},
		{Name: "m", Read: 1, Wrote: 4},
		{Name: "n", Read: 1},
		{Name: "n", Read: 1, Wrote: 5, Guard: history.Fenced},
		{Name: "n", Read: 1, Wrote: 5, Guard: history.Fenced, Refused: true},
	}}
	require.Equal(t, 1, check.LostUpdates(h, ""))
	require.Zero(t, check.LostUpdates(h, history.Fenced))
}

func TestAdopted(t *testing.T) {
	adopted := func(ticket string, from, token uint64, called, granted int64) history.Span {
		s := span("a", true, token, called, granted, 0)
		s.Ticket, s.From = ticket, from
		return s
	}
	for name, c := range map[string]struct {
		spans  []history.Span
		faults []history.Fault
		broken int
	}{
		"one after the other": {spans: []history.Span{adopted("x", 1, 2, 0, 1), adopted("y", 2, 3, 2, 3)}},
		"twice":               {spans: []history.Span{adopted("x", 1, 2, 0, 1), adopted("x", 1, 3, 2, 3)}, broken: 1},
		"not larger":          {spans: []history.Span{adopted("x", 2, 2, 0, 1)}, broken: 1},
		"over lost data": {
			spans:  []history.Span{adopted("x", 1, 2, 0, 1), adopted("x", 1, 3, 4, 5)},
			faults: []history.Fault{{From: 2, Until: 3, Reorders: true}},
		},
		"none": {spans: []history.Span{span("a", true, 1, 0, 1, 0), span("b", true, 2, 0, 3, 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			found, _ := check.Adopted(&history.History{Spans: c.spans, Faults: c.faults})
			require.Len(t, found, c.broken)
		})
	}
}

// All judges by every rule.
func TestAll(t *testing.T) {
	h := &history.History{
		Spans:    []history.Span{span("a", true, 2, 0, 10, 20), span("b", true, 1, 19, 19, 30)},
		Accesses: []history.Access{{Name: "n", Guard: history.Fenced, Read: 1}},
	}
	j := check.All(h, check.Busy)
	var rules []string
	for _, v := range j.Violations {
		rules = append(rules, v.Rule)
	}
	require.Equal(t, []string{"exclusion", "token order", "register"}, rules)
	require.Equal(t, map[string]int{
		"exclusion": 2, "tokens": 2, "waits": 2, "order": 0, "kept": 0, "minimum": 0, "adopted": 0, "register": 1,
		"order in a process": 0, "told": 0, "available": 0, "backed": 0, "abandoned": 0, "prompt": 0, "idle": 0,
		"answers": 0,
	}, j.Judged)
}

func TestWaits(t *testing.T) {
	slack := check.Slack{Context: time.Second, Healed: 10 * time.Second}
	failure := history.Failure{Process: 1, Limit: at(1), Ended: at(3), Cause: "contended"}
	still := history.Fault{Kind: "still", Process: 1, From: at(1), Until: at(2.5)}
	late := history.Failure{Limit: at(60), Called: at(61), Ended: at(62), Cause: "no quorum"}
	for name, c := range map[string]struct {
		failures []history.Failure
		spans    []history.Span
		faults   []history.Fault
		broken   int
	}{
		"beyond its context":       {failures: []history.Failure{failure}, broken: 1},
		"a process stood still":    {failures: []history.Failure{failure}, faults: []history.Fault{still}},
		"fails though all is well": {failures: []history.Failure{late}, broken: 1},
		"waits though all is well": {spans: []history.Span{span("a", true, 1, 0, at(71), 0)}, broken: 1},
		"waits while the machine stands still": {
			spans: []history.Span{span("a", true, 1, 0, at(71), 0)},
			faults: []history.Fault{
				{Kind: history.Still, From: at(61), Until: at(63)}, {Kind: history.Still, From: at(62), Until: at(64)},
			},
		},
		"it stood still before": {
			spans:  []history.Span{span("a", true, 1, 0, at(71), 0)},
			faults: []history.Fault{{Kind: history.Still, From: at(55), Until: at(59)}}, broken: 1,
		},
		"waits for a fault": {spans: []history.Span{span("a", true, 1, 0, at(69), 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history.History{
				Run: history.Run{Healed: at(60)}, Failures: c.failures, Spans: c.spans, Faults: c.faults,
			}
			found, _ := check.Waits(h, slack)
			require.Len(t, found, c.broken)
		})
	}
}
