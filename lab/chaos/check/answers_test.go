package check_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/lab/chaos/check"
	"github.com/seed74116694/fencelock/lab/chaos/history"
)

func TestAnswers(t *testing.T) {
	strikes := func(from, until float64, masters ...int) history.Fault {
		return history.Fault{From: at(from), Until: at(until), Masters: masters}
	}
	ofOther, forgets := strikes(19, 30), strikes(10, 16, 0, 1)
	ofOther.Workers, forgets.Forgets = []int{2}, true
	other := history.Fault{Kind: history.Still, Process: 7, From: at(20.1), Until: at(20.2)}
	still := history.Fault{Kind: history.Still, Process: 1, From: at(20.1), Until: at(20.2)}
	for name, c := range map[string]struct {
		change         func(*history.Answer)
		faults         []history.Fault
		began          float64 // when the run began, with new masters
		judged, broken int
	}{
		"as foreseen": {judged: 1},
		"a loss while its process stood still before": {
			change: func(a *history.Answer) { a.Got, a.Never = "lost", nil },
			faults: []history.Fault{{Kind: history.Still, Process: 1, From: at(18), Until: at(19)}},
		},
		"not as foreseen":     {change: func(a *history.Answer) { a.Got = "contended" }, judged: 1, broken: 1},
		"what is never right": {change: func(a *history.Answer) { a.Got = "lost" }, judged: 1, broken: 1},
		"the same, under a fault": {
			change: func(a *history.Answer) { a.Got = "lost" }, faults: []history.Fault{strikes(19, 30)}, judged: 1, broken: 1,
		},
		"under a fault": {
			change: func(a *history.Answer) { a.Got = "contended" }, faults: []history.Fault{strikes(19, 30)}, judged: 1,
		},
		"after a fault": {
			change: func(a *history.Answer) { a.Got = "contended" }, faults: []history.Fault{strikes(12, 18)}, judged: 1,
		},
		"in its process, under a fault": {
			change: func(a *history.Answer) { a.Got, a.Local = "contended", true }, faults: []history.Fault{strikes(19, 30)},
			judged: 1, broken: 1,
		},
		"in its process, which stands still": {
			change: func(a *history.Answer) { a.Got, a.Local = "contended", true }, faults: []history.Fault{still}, judged: 1,
		},
		"long after a fault": {
			change: func(a *history.Answer) { a.Got = "contended" }, faults: []history.Fault{strikes(12, 16)},
			judged: 1, broken: 1,
		},
		"long after two have forgotten": {
			change: func(a *history.Answer) { a.Got = "contended" }, faults: []history.Fault{forgets}, judged: 1,
		},
		"soon after its masters were new": {
			change: func(a *history.Answer) { a.Got = "contended" }, began: 14.5, judged: 1,
		},
		"a conflict of new masters": {
			change: func(a *history.Answer) { a.Got = "conflict" }, began: 14.5, judged: 1, broken: 1,
		},
		"new masters, and one of them is a replica": {
			change: func(a *history.Answer) { a.Got = "option" }, began: 14.5, faults: []history.Fault{strikes(19, 30, 1)},
			judged: 1,
		},
		"long after they were": {
			change: func(a *history.Answer) { a.Got = "contended" }, began: 13.5, judged: 1, broken: 1,
		},
		"one of three masters": {
			change: func(a *history.Answer) { a.Got = "contended" }, faults: []history.Fault{strikes(19, 30, 1)},
			judged: 1, broken: 1,
		},
		"two of three masters": {
			change: func(a *history.Answer) { a.Got = "contended" }, faults: []history.Fault{strikes(19, 30, 1, 2)}, judged: 1,
		},
		"links of another": {
			change: func(a *history.Answer) { a.Got = "contended" }, faults: []history.Fault{ofOther}, judged: 1, broken: 1,
		},
		"while it stands still": {
			change: func(a *history.Answer) { a.Got = "contended" }, faults: []history.Fault{still}, judged: 1,
		},
		"while another process stands still": {
			change: func(a *history.Answer) { a.Got = "contended" }, faults: []history.Fault{other}, judged: 1, broken: 1,
		},
		"no quorum": {
			change: func(a *history.Answer) { a.Got, a.Ended = "no quorum", at(21.5) }, judged: 1, broken: 1,
		},
		"no quorum, at once": {change: func(a *history.Answer) { a.Got = "no quorum" }, judged: 1},
		"late":               {change: func(a *history.Answer) { a.Ended = at(22) }, judged: 1, broken: 1},
		"late, closed":       {change: func(a *history.Answer) { a.Got, a.Ended = "closed", at(22) }},
		"nothing is foreseen under a fault": {
			change: func(a *history.Answer) { a.Never = nil }, faults: []history.Fault{strikes(19, 30)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := history.Answer{
				Process: 1, Slot: 1, Called: at(20), Ended: at(20.5), Got: "nil",
				Want: []string{"nil"}, Never: []string{"lost"}, Within: at(1),
			}
			if c.change != nil {
				c.change(&a)
			}
			h := &history.History{
				Run:     history.Run{Masters: 3, TTL: at(2), Began: at(c.began)},
				Answers: []history.Answer{a}, Faults: c.faults,
			}
			found, judged := check.Answers(h, check.Busy)
			require.Len(t, found, c.broken)
			require.Equal(t, c.judged, judged)
		})
	}
}

func TestExclusionAfterABreak(t *testing.T) {
	for name, c := range map[string]struct {
		by     history.Break
		broken int
	}{
		"at once":          {by: history.Break{Name: "n", Token: 1, Now: true, Called: 12}},
		"too late":         {by: history.Break{Name: "n", Token: 1, Now: true, Called: 16}, broken: 1},
		"not at once":      {by: history.Break{Name: "n", Token: 1, Called: 12}, broken: 1},
		"another lock":     {by: history.Break{Name: "m", Token: 1, Now: true, Called: 12}, broken: 1},
		"the later holder": {by: history.Break{Name: "n", Token: 2, Now: true, Called: 17}, broken: 1},
	} {
		spans := []history.Span{span("a", true, 1, 0, 10, 20), span("b", true, 2, 0, 15, 30)}
		found, _ := check.Exclusion(&history.History{Spans: spans, Breaks: []history.Break{c.by}})
		require.Len(t, found, c.broken, name)
	}
}

// A lease is lost as broken only after an operator has broken it.
func TestBrokenLeases(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		by     history.Break
		broken int
	}{
		"broken":       {"broken", history.Break{Name: "n", Called: at(4)}, 0},
		"by nobody":    {"broken", history.Break{Name: "m", Called: at(4)}, 1},
		"too late":     {"broken", history.Break{Name: "n", Called: at(6)}, 1},
		"other reason": {"gone", history.Break{Name: "n", Called: at(4)}, 1},
	} {
		s := span("a", true, 1, 0, at(1), at(5))
		s.Lost, s.Reason = at(5), c.reason
		h := &history.History{Spans: []history.Span{s}, Breaks: []history.Break{c.by}}
		h.Run.Masters, h.Run.TTL = 1, int64(time.Second)
		found, _ := check.Kept(h, check.Busy)
		require.Len(t, found, c.broken, name)
	}
}

// No lock is granted before the minimum of the hold before is over.
func TestMinimum(t *testing.T) {
	for name, c := range map[string]struct {
		next   history.Span
		by     []history.Break
		faults []history.Fault
		broken int
	}{
		"after it":        {next: span("b", true, 2, at(1), at(3), at(4))},
		"before it":       {next: span("b", true, 2, at(1), at(2.5), at(4)), broken: 1},
		"reads beside it": {next: span("b", false, 2, at(1), at(2.5), at(4))},
		"broken":          {next: span("b", true, 2, at(1), at(2.5), at(4)), by: []history.Break{{Name: "n", Token: 1}}},
		"ended, and broken": {
			next: span("b", true, 2, at(1), at(2.5), at(4)), by: []history.Break{{Name: "n", Called: at(2)}},
		},
		"another is broken": {
			next: span("b", true, 2, at(1), at(2.5), at(4)), by: []history.Break{{Name: "m", Called: at(2)}}, broken: 1,
		},
		"forgotten": {
			next:   span("b", true, 2, at(1), at(2.5), at(4)),
			faults: []history.Fault{{From: at(1.5), Until: at(1.6), Forgets: true}},
		},
	} {
		s := span("a", false, 1, at(1), at(1.1), at(1.2))
		s.MinHold = int64(2 * time.Second)
		h := &history.History{Spans: []history.Span{s, c.next}, Breaks: c.by, Faults: c.faults}
		found, _ := check.Minimum(h, 0.01)
		require.Len(t, found, c.broken, name)
	}
}

// Goroutines of one process that share an RWMutex get it in the order of their calls, whatever fault strikes.
func TestOrderInAProcess(t *testing.T) {
	waits := func(process int, write bool, called, granted float64) history.Span {
		return history.Span{
			Name: "m", Form: "mutex", Queued: true, Process: process, Write: write, Called: at(called), Granted: at(granted),
		}
	}
	tried := waits(1, true, 2, 3)
	tried.Queued = false
	still := history.Fault{Kind: history.Still, Process: 1, From: at(1.1), Until: at(1.9)}
	for name, c := range map[string]struct {
		spans          []history.Span
		faults         []history.Fault
		judged, broken int
	}{
		"in order":           {spans: []history.Span{waits(1, true, 1, 4), waits(1, true, 2, 5)}, judged: 1},
		"overtaken":          {spans: []history.Span{waits(1, true, 1, 4), waits(1, false, 2, 3)}, judged: 1, broken: 1},
		"by another process": {spans: []history.Span{waits(1, true, 1, 4), waits(2, true, 2, 3)}},
		"two readers":        {spans: []history.Span{waits(1, false, 1, 4), waits(1, false, 2, 3)}},
		"by a try":           {spans: []history.Span{waits(1, true, 1, 4), tried}},
		"a little later":     {spans: []history.Span{waits(1, true, 1, 4), waits(1, true, 1.1, 3)}, judged: 1},
		"during a fault": {
			spans:  []history.Span{waits(1, true, 1, 4), waits(1, true, 2, 3)},
			faults: []history.Fault{{Kind: "cut", From: at(1), Until: at(4)}}, judged: 1, broken: 1,
		},
		"after it stood still": {
			spans: []history.Span{waits(1, true, 1, 4), waits(1, true, 2, 3)}, faults: []history.Fault{still}, judged: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history.History{Spans: c.spans, Faults: c.faults}
			found, judged := check.OrderInProcess(h, check.Busy)
			require.Len(t, found, c.broken)
			require.Equal(t, c.judged, judged)
			found, judged = check.Order(h, check.Busy)
			require.Empty(t, found)
			require.Zero(t, judged)
		})
	}
}

func TestTold(t *testing.T) {
	for name, c := range map[string]struct {
		change         func(*history.Span)
		judged, broken int
	}{
		"told":       {change: func(s *history.Span) { s.End = "lost" }, judged: 1},
		"not told":   {change: func(*history.Span) {}, judged: 1, broken: 1},
		"in time":    {change: func(s *history.Span) { s.Over = 0 }},
		"as planned": {change: func(s *history.Span) { s.Bounded = true }},
		"converted":  {change: func(s *history.Span) { s.End = "converted" }},
	} {
		t.Run(name, func(t *testing.T) {
			s := history.Span{Name: "n", End: "released", Over: at(1), Ended: at(2)}
			c.change(&s)
			found, judged := check.Told(&history.History{Spans: []history.Span{s}})
			require.Len(t, found, c.broken)
			require.Equal(t, c.judged, judged)
		})
	}
}

func TestAvailable(t *testing.T) {
	strikes := func(from, until float64) history.Fault { return history.Fault{From: at(from), Until: at(until)} }
	ofOne, ofWorker, ofOther := strikes(19, 30), strikes(19, 30), strikes(19, 30)
	ofOne.Masters, ofWorker.Workers, ofOther.Workers = []int{1}, []int{1}, []int{2}
	ofTwo := strikes(19, 30)
	ofTwo.Masters = []int{0, 1}
	forgets := strikes(10, 16)
	forgets.Forgets, forgets.Masters = true, []int{0, 1}
	for name, c := range map[string]struct {
		change         func(*history.Failure)
		faults         []history.Fault
		began          float64 // when the run began, with new masters
		held           float64 // until when another had the lock; 0 for none
		judged, broken int
	}{
		"nothing strikes":   {judged: 1, broken: 1},
		"the lock was free": {held: 20.9, judged: 1, broken: 1},
		"the lock was held": {held: 21.1},
		"it is still held":  {held: 22.1, judged: 1, broken: 1},
		"one master":        {faults: []history.Fault{ofOne}, judged: 1, broken: 1},
		"all masters":       {faults: []history.Fault{strikes(19, 30)}, judged: 1},
		"a while ago":       {faults: []history.Fault{strikes(10, 14)}, judged: 1, broken: 1},
		"two that forget":   {faults: []history.Fault{forgets}, judged: 1},
		"new masters":       {began: 14.5, judged: 1},
		"masters once new":  {began: 13.5, judged: 1, broken: 1},
		"new masters, and one of them is a replica": {
			change: func(f *history.Failure) { f.Cause, f.Ended = "option", at(20.5) }, began: 14.5,
			faults: []history.Fault{ofOne}, judged: 1,
		},
		"a conflict of new masters": {
			change: func(f *history.Failure) { f.Cause, f.Ended = "conflict", at(20.5) }, began: 14.5, judged: 1, broken: 1,
		},
		"links of another":   {faults: []history.Fault{ofOther}, judged: 1, broken: 1},
		"contended":          {change: func(f *history.Failure) { f.Cause = "contended" }},
		"it had little time": {change: func(f *history.Failure) { f.Ended = at(20.5) }},
		"masters that cannot be used, at once": {
			change: func(f *history.Failure) { f.Cause, f.Ended = "option", at(20.5) }, judged: 1, broken: 1,
		},
		"such masters, and one of them is a replica": {
			change: func(f *history.Failure) { f.Cause, f.Ended = "option", at(20.5) }, faults: []history.Fault{ofOne},
			judged: 1, broken: 1,
		},
		"such masters, and two of them are replicas": {
			change: func(f *history.Failure) { f.Cause, f.Ended = "option", at(20.5) }, faults: []history.Fault{ofTwo},
			judged: 1,
		},
		"a conflict at once": {
			change: func(f *history.Failure) { f.Cause, f.Ended = "conflict", at(20.5) }, judged: 1, broken: 1,
		},
		"its process's links":   {faults: []history.Fault{ofWorker}, judged: 1},
		"a fault after the end": {faults: []history.Fault{strikes(23, 30)}, judged: 1, broken: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := history.Failure{Slot: 1, Cause: "no quorum", Called: at(20), Ended: at(22)}
			if c.change != nil {
				c.change(&f)
			}
			h := &history.History{
				Run:      history.Run{Masters: 3, TTL: at(2), Began: at(c.began)},
				Failures: []history.Failure{f}, Faults: c.faults,
				Holds: []history.Hold{{From: at(19), Until: at(c.held)}},
			}
			found, judged := check.Available(h, check.Busy)
			require.Len(t, found, c.broken)
			require.Equal(t, c.judged, judged)
		})
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
