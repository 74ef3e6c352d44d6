package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/chaos/check"
	"github.com/seed74116694/fencelock/chaos/history"
)

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
		held           float64 // until when another had the lock; 0 for none
		judged, broken int
	}{
		"nothing strikes":    {judged: 1, broken: 1},
		"the lock was free":  {held: 20.9, judged: 1, broken: 1},
		"the lock was held":  {held: 21.1},
		"it is still held":   {held: 22.1, judged: 1, broken: 1},
		"one master":         {faults: []history.Fault{ofOne}, judged: 1, broken: 1},
		"all masters":        {faults: []history.Fault{strikes(19, 30)}, judged: 1},
		"a while ago":        {faults: []history.Fault{strikes(10, 14)}, judged: 1, broken: 1},
		"two that forget":    {faults: []history.Fault{forgets}, judged: 1},
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
				Run: history.Run{Masters: 3, TTL: at(2)}, Failures: []history.Failure{f}, Faults: c.faults,
				Holds: []history.Hold{{From: at(19), Until: at(c.held)}},
			}
			found, judged := check.Available(h, check.Busy)
			require.Len(t, found, c.broken)
			require.Equal(t, c.judged, judged)
		})
	}
}
