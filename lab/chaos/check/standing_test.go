package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/lab/chaos/check"
	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// hold is one hold of token 5 on a master, in seconds.
func hold(master int, from, until float64) history.Hold {
	return history.Hold{Master: master, Name: "n", ID: "h", Write: true, Token: 5, From: at(from), Until: at(until)}
}

// trusted is a client that has the token 5, from 2 s to 4 s, and has released it at 5 s.
func trusted(change func(*history.Span)) history.Span {
	s := span("a", true, 5, at(1), at(2), at(4))
	s.Form, s.Ended, s.End = "lock", at(5), "released"
	if change != nil {
		change(&s)
	}
	return s
}

func still(from, until float64) history.Fault {
	return history.Fault{Kind: history.Still, From: at(from), Until: at(until), Process: 1}
}

func TestBacked(t *testing.T) {
	block := hold(0, 1, 5)
	block.Token, block.Block = 9, 5
	short := block
	short.Block = 4
	read := hold(0, 1, 5)
	read.Write = false
	for name, c := range map[string]struct {
		masters        int // one if 0
		holds          []history.Hold
		change         func(*history.Span)
		faults         []history.Fault
		breaks         []history.Break
		judged, broken int
	}{
		"the whole time":    {holds: []history.Hold{hold(0, 1, 5)}, judged: 1},
		"just":              {holds: []history.Hold{hold(0, 2, 4.1)}, judged: 1},
		"granted too late":  {holds: []history.Hold{hold(0, 2.1, 5)}, judged: 1, broken: 1},
		"ended too early":   {holds: []history.Hold{hold(0, 1, 3.9)}, judged: 1, broken: 1},
		"a gap":             {holds: []history.Hold{hold(0, 1, 3), hold(0, 3.1, 5)}, judged: 1, broken: 1},
		"one after another": {holds: []history.Hold{hold(0, 1, 3), hold(0, 3, 5)}, judged: 1},
		"a quorum":          {masters: 3, holds: []history.Hold{hold(0, 1, 5), hold(2, 1, 5)}, judged: 1},
		"a quorum in turns": {
			masters: 3, holds: []history.Hold{hold(0, 1, 3), hold(1, 1, 5), hold(2, 2.9, 5)}, judged: 1,
		},
		"a minority":       {masters: 3, holds: []history.Hold{hold(0, 1, 5)}, judged: 1, broken: 1},
		"one master twice": {masters: 3, holds: []history.Hold{hold(0, 1, 5), hold(0, 1, 5)}, judged: 1, broken: 1},
		"another token": {
			holds: []history.Hold{hold(0, 1, 5)}, change: func(s *history.Span) { s.Token = 6 }, judged: 1, broken: 1,
		},
		"one of a block":    {holds: []history.Hold{block}, judged: 1},
		"below a block":     {holds: []history.Hold{short}, judged: 1, broken: 1},
		"a write by a read": {holds: []history.Hold{read}, judged: 1, broken: 1},
		"it never looked":   {holds: []history.Hold{hold(0, 1, 1.5)}, change: func(s *history.Span) { s.Last = 0 }},
		"nothing was shown": {},
		"a clock was set": {
			holds: []history.Hold{hold(0, 1, 3)}, faults: []history.Fault{{From: at(3), Until: at(3), Excuses: true}},
		},
		"freed by operators": {
			holds: []history.Hold{hold(0, 1, 3)}, breaks: []history.Break{{Name: "n", Hold: "h", Now: true, Called: at(3)}},
			judged: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, judged := check.Backed(&history.History{
				Run: history.Run{Masters: max(c.masters, 1)}, Spans: []history.Span{trusted(c.change)}, Holds: c.holds,
				Faults: c.faults, Breaks: c.breaks,
			})
			require.Len(t, found, c.broken)
			require.Equal(t, c.judged, judged)
		})
	}
}

func TestAbandoned(t *testing.T) {
	ends, lost := hold(0, 1, 9), hold(0, 1, 9)
	ends.Ends, lost.Lost = true, true
	block, other := hold(0, 1, 6), hold(0, 1, 9)
	block.Block, other.Name = 5, "m"
	joined := hold(0, 1, 9)
	joined.ID = "j"
	raised, later := hold(1, 1, 3), hold(0, 2, 3)
	raised.Token, later.Token = 6, 6
	cast, once, then := hold(0, 1, 9), hold(1, 1.1, 3), hold(1, 3, 9)
	cast.Token, then.Token = 6, 6
	none := []history.Span{trusted(func(s *history.Span) { s.Token = 4 })}
	for name, c := range map[string]struct {
		masters        int
		holds          []history.Hold
		spans          []history.Span
		failures       []history.Failure
		faults, slow   []history.Fault
		judged, broken int
	}{
		"released": {
			masters: 1, holds: []history.Hold{hold(0, 1, 5.1)}, spans: []history.Span{trusted(nil)}, judged: 1,
		},
		"released too late": {
			masters: 1, holds: []history.Hold{hold(0, 1, 6)}, spans: []history.Span{trusted(nil)}, judged: 1, broken: 1,
		},
		"of no client":          {masters: 1, holds: []history.Hold{hold(0, 1, 2)}, spans: none, judged: 1, broken: 1},
		"of no client for long": {masters: 1, holds: []history.Hold{hold(0, 1, 1.2)}, spans: none, judged: 1},
		"of a call that waited for others": {
			masters: 1, holds: []history.Hold{hold(0, 1, 3.2)}, spans: none, judged: 1,
			failures: []history.Failure{{Name: "m", Form: "many", Called: at(0.5), Ended: at(3)}},
		},
		"of a call that waited for others before": {
			masters: 1, holds: []history.Hold{hold(0, 1, 3.2)}, spans: none, judged: 1, broken: 1,
			failures: []history.Failure{{Name: "m", Form: "many", Called: at(0.5), Ended: at(2)}},
		},
		"of a conversion that waited for readers of its process": {
			masters: 1, holds: []history.Hold{hold(0, 1, 3.2)}, spans: none, judged: 1,
			failures: []history.Failure{{Name: "n", Form: history.Conversion, Called: at(0.5), Ended: at(3)}},
		},
		"of a conversion of another lock": {
			masters: 1, holds: []history.Hold{hold(0, 1, 3.2)}, spans: none, judged: 1, broken: 1,
			failures: []history.Failure{{Name: "m", Form: history.Conversion, Called: at(0.5), Ended: at(3)}},
		},
		"of such a call, with the token of another one": {
			masters: 1, holds: []history.Hold{hold(0, 1, 5.1), joined}, spans: []history.Span{trusted(nil)}, judged: 2,
			failures: []history.Failure{{Name: "m", Form: "many", Called: at(0.5), Ended: at(8.9)}},
		},
		"of such a call, that had the token of another one at first": {
			masters: 3, holds: []history.Hold{cast, once, then, joined}, spans: []history.Span{trusted(nil)}, judged: 1,
			failures: []history.Failure{{Name: "m", Form: "many", Called: at(0.5), Ended: at(8.9)}},
		},
		"whose token the masters do not agree on": {
			masters: 3, holds: []history.Hold{hold(0, 1, 2), raised}, spans: none,
		},
		"whose token the masters agree on": {
			masters: 3, holds: []history.Hold{hold(0, 1, 2), raised, later}, spans: none, judged: 1, broken: 1,
		},
		"on a minority": {masters: 3, holds: []history.Hold{hold(0, 1, 9)}},
		"on a quorum": {
			masters: 3, holds: []history.Hold{hold(0, 1, 9), hold(1, 1, 6), hold(2, 1, 5)}, spans: []history.Span{trusted(nil)},
			judged: 1, broken: 1,
		},
		"unconfirmed": {
			masters: 1, holds: []history.Hold{hold(0, 1, 9)},
			spans: []history.Span{trusted(func(s *history.Span) { s.End = "unconfirmed" })},
		},
		"released in the background": {
			masters: 1, holds: []history.Hold{hold(0, 1, 9)}, judged: 1, broken: 1,
			spans: []history.Span{trusted(func(s *history.Span) {
				s.End, s.Err = "unconfirmed", "release not confirmed; it continues in the background until the hold has expired"
			})},
		},
		"it lingers":        {masters: 1, holds: []history.Hold{block}, spans: []history.Span{trusted(nil)}, judged: 1},
		"of another lock":   {masters: 1, holds: []history.Hold{other}},
		"until its minimum": {masters: 1, holds: []history.Hold{ends}, spans: []history.Span{trusted(nil)}},
		"its master forgot": {masters: 1, holds: []history.Hold{lost}, spans: []history.Span{trusted(nil)}},
		"a fault": {
			masters: 1, holds: []history.Hold{hold(0, 1, 9)}, spans: []history.Span{trusted(nil)},
			faults: []history.Fault{{From: at(5), Until: at(6)}},
		},
		"a fault elsewhere": {
			masters: 1, holds: []history.Hold{hold(0, 1, 9)}, spans: []history.Span{trusted(nil)},
			faults: []history.Fault{{From: at(5), Until: at(6), Workers: []int{1}}}, judged: 1, broken: 1,
		},
		"a fault elsewhere, and it was joined": {
			masters: 1, holds: []history.Hold{hold(0, 1, 5.1), joined}, spans: []history.Span{trusted(nil)},
			faults: []history.Fault{{From: at(5), Until: at(6), Workers: []int{1}}}, judged: 1,
		},
		"a fault of another master": {
			masters: 3, holds: []history.Hold{hold(0, 1, 9), hold(1, 1, 9), hold(2, 1, 9)}, spans: []history.Span{trusted(nil)},
			faults: []history.Fault{{From: at(5), Until: at(6), Masters: []int{2}}}, judged: 1, broken: 1,
		},
		"a fault of one of two masters": {
			masters: 3, holds: []history.Hold{hold(0, 1, 9), hold(1, 1, 9)}, spans: []history.Span{trusted(nil)},
			faults: []history.Fault{{From: at(5), Until: at(6), Masters: []int{1}}},
		},
		"a fault that is over": {
			masters: 1, holds: []history.Hold{hold(0, 1, 7)}, spans: []history.Span{trusted(nil)},
			faults: []history.Fault{{Kind: "cut", From: at(5), Until: at(5)}}, judged: 1, broken: 1,
		},
		"just after a fault": {
			masters: 1, holds: []history.Hold{hold(0, 1, 6.4)}, spans: []history.Span{trusted(nil)},
			faults: []history.Fault{{Kind: "cut", From: at(5), Until: at(5)}}, judged: 1,
		},
		"answered late": {
			masters: 1, holds: []history.Hold{hold(0, 1, 6)}, spans: []history.Span{trusted(nil)},
			slow: []history.Fault{{From: at(5), Until: at(5.9), Workers: []int{0}}}, judged: 1,
		},
		"another process was answered late": {
			masters: 1, holds: []history.Hold{hold(0, 1, 6)}, spans: []history.Span{trusted(nil)},
			slow: []history.Fault{{From: at(5), Until: at(5.9), Workers: []int{1}}}, judged: 1, broken: 1,
		},
		"a busy machine": {
			masters: 1, holds: []history.Hold{hold(0, 1, 5.8)}, spans: []history.Span{trusted(nil)},
			faults: []history.Fault{still(5, 5.2)}, judged: 1,
		},
		"a busy machine and longer": {
			masters: 1, holds: []history.Hold{hold(0, 1, 6)}, spans: []history.Span{trusted(nil)},
			faults: []history.Fault{still(5, 5.2)}, judged: 1, broken: 1,
		},
		"a very busy machine": {
			masters: 1, holds: []history.Hold{hold(0, 1, 9)}, spans: []history.Span{trusted(nil)},
			faults: []history.Fault{still(5, 5.4), still(6, 6.4)}, judged: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, judged := check.Abandoned(&history.History{
				Run: history.Run{Masters: c.masters, TTL: at(4), Ended: at(60)}, Spans: c.spans, Holds: c.holds, Faults: c.faults,
				Failures: c.failures, Slow: c.slow,
			}, check.Busy)
			require.Len(t, found, c.broken)
			require.Equal(t, c.judged, judged)
		})
	}
}

func TestPrompt(t *testing.T) {
	for name, c := range map[string]struct {
		from           float64
		change         func(*history.Span)
		faults         []history.Fault
		judged, broken int
	}{
		"at once":           {from: 2, judged: 1},
		"late":              {from: 1.2, judged: 1, broken: 1},
		"a short call":      {from: 1.2, change: func(s *history.Span) { s.Called = at(1.8) }},
		"an older hold":     {from: 0.5},
		"of several":        {from: 1.2, change: func(s *history.Span) { s.Form = "many" }},
		"a join":            {from: 1.2, change: func(s *history.Span) { s.Joined = true }},
		"of another client": {from: 1.2, change: func(s *history.Span) { s.Token = 6 }},
		"a fault":           {from: 1.2, faults: []history.Fault{{From: at(0.9), Until: at(1)}}},
		"a fault elsewhere, and a message less": {
			from: 1.2, faults: []history.Fault{{From: at(0.9), Until: at(1), Workers: []int{1}}}, judged: 1,
		},
		"a fault elsewhere": {
			from: 1.2, change: func(s *history.Span) { s.Granted = at(3) },
			faults: []history.Fault{{From: at(0.9), Until: at(1), Workers: []int{1}}}, judged: 1, broken: 1,
		},
		"a busy machine": {from: 1.2, faults: []history.Fault{still(1.5, 1.7)}, judged: 1},
	} {
		t.Run(name, func(t *testing.T) {
			found, judged := check.Prompt(&history.History{
				Run: history.Run{Masters: 1}, Spans: []history.Span{trusted(c.change)}, Holds: []history.Hold{hold(0, c.from, 5)},
				Faults: c.faults,
			}, check.Busy)
			require.Len(t, found, c.broken)
			require.Equal(t, c.judged, judged)
		})
	}
}

func TestIdle(t *testing.T) {
	waited := func(form string) []history.Span {
		return []history.Span{trusted(func(s *history.Span) { s.Form, s.Granted = form, at(4) })}
	}
	gaveUp := func(cause string) []history.Failure {
		return []history.Failure{{Name: "n", Form: "lock", Called: at(1), Ended: at(4), Cause: cause}}
	}
	for name, c := range map[string]struct {
		masters        int
		holds          []history.Hold
		spans          []history.Span
		failures       []history.Failure
		faults         []history.Fault
		began          float64 // when the run began, with new masters; 0: long ago
		judged, broken int
	}{
		"it was taken": {masters: 1, holds: []history.Hold{hold(0, 0, 3.9)}, spans: waited("lock"), judged: 1},
		"it was free": {
			masters: 1, holds: []history.Hold{hold(0, 0, 2)}, spans: waited("lock"), judged: 1, broken: 1,
		},
		"a give-up": {
			masters: 1, holds: []history.Hold{hold(0, 0, 2)}, failures: gaveUp("contended"), judged: 1, broken: 1,
		},
		"another failure": {masters: 1, holds: []history.Hold{hold(0, 0, 2)}, failures: gaveUp("no quorum")},
		"free on a minority": {
			masters: 3, holds: []history.Hold{hold(0, 0, 4), hold(1, 0, 4)}, spans: waited("lock"), judged: 1,
		},
		"free on a quorum": {
			masters: 3, holds: []history.Hold{hold(0, 0, 4), hold(1, 0, 2)}, spans: waited("lock"), judged: 1, broken: 1,
		},
		"free on new masters": {
			masters: 3, holds: []history.Hold{hold(0, 0, 1)}, spans: waited("lock"), began: 0.5, judged: 1,
		},
		"one new master": {
			masters: 1, holds: []history.Hold{hold(0, 0, 1)}, spans: waited("lock"), began: 0.5, judged: 1, broken: 1,
		},
		"it waits for others": {masters: 1, holds: []history.Hold{hold(0, 0, 2)}, spans: waited("many")},
		"a fault": {
			masters: 1, holds: []history.Hold{hold(0, 0, 2)}, spans: waited("lock"),
			faults: []history.Fault{{From: at(2), Until: at(2.1)}}, judged: 1,
		},
		"a fault elsewhere": {
			masters: 1, holds: []history.Hold{hold(0, 0, 2)}, spans: waited("lock"),
			faults: []history.Fault{{From: at(2), Until: at(2.1), Workers: []int{1}}}, judged: 1, broken: 1,
		},
		"a fault of a master": {
			masters: 3, holds: []history.Hold{hold(0, 0, 4), hold(1, 0, 2)}, spans: waited("lock"),
			faults: []history.Fault{{From: at(2), Until: at(2.1), Masters: []int{2}}}, judged: 1,
		},
		"a fault of a master that is not needed": {
			masters: 3, holds: []history.Hold{hold(0, 0, 2), hold(1, 0, 2)}, spans: waited("lock"),
			faults: []history.Fault{{From: at(2), Until: at(2.1), Masters: []int{2}}}, judged: 1, broken: 1,
		},
		"a busy machine": {
			masters: 1, holds: []history.Hold{hold(0, 0, 2)}, spans: waited("lock"), faults: []history.Fault{still(2, 2.3)},
			judged: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.began == 0 {
				c.began = -60
			}
			found, judged := check.Idle(&history.History{
				Run:   history.Run{Masters: c.masters, Began: at(c.began), Ended: at(60)},
				Spans: c.spans, Failures: c.failures, Holds: c.holds, Faults: c.faults,
			}, check.Busy)
			require.Len(t, found, c.broken)
			require.Equal(t, c.judged, judged)
		})
	}
}

// Where a lock has had too many records to be shown, nothing is said of its holds.
func TestCrowdsAreNotJudged(t *testing.T) {
	h := &history.History{Run: history.Run{Masters: 1}, Spans: []history.Span{trusted(nil)}}
	h.Holds = []history.Hold{{Name: "m", ID: "h", From: at(1), Until: at(2)}}
	require.Len(t, check.All(h, check.Busy).Violations, 1)
	h.Holds = append(h.Holds, history.Hold{Name: "n", Crowd: true})
	require.Empty(t, check.All(h, check.Busy).Violations)
}
