package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/chaos/check"
	"github.com/seed74116694/fencelock/chaos/history"
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
				Run: history.Run{Masters: 3, TTL: at(2)}, Answers: []history.Answer{a}, Faults: c.faults,
			}
			found, judged := check.Answers(h, check.Busy)
			require.Len(t, found, c.broken)
			require.Equal(t, c.judged, judged)
		})
	}
}
