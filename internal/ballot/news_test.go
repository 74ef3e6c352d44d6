package ballot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/ballot"
)

// Messages, refreshes and answers overtake each other: only the latest grant of a master counts.

func TestAMessageThatOvertakesTheAnswer(t *testing.T) {
	for name, answer := range map[string]ballot.Answer{
		"queued": queued, "refused": refused, "not answered": silent, "an older grant": granted(3), "the same": granted(4),
	} {
		t.Run(name, func(t *testing.T) {
			b := asked(ballot.Wait, 1)
			b.Vote(A).Granted(4, now.Add(trust))
			b.Vote(A).Answered(answer)
			require.EqualValues(t, 4, reported(b, now))
			require.Equal(t, answer.Unknown, b.Vote(A).Unanswered(), "its request may still run")
		})
	}
	t.Run("a later grant", func(t *testing.T) {
		b := asked(ballot.Wait, 1)
		b.Vote(A).Granted(4, now)
		b.Vote(A).Answered(granted(5))
		require.EqualValues(t, 5, reported(b, now))
	})
}

func TestAnOldMessageBringsNothingBack(t *testing.T) {
	for name, ends := range map[string]func(*ballot.Ballot){
		"a later grant":   func(b *ballot.Ballot) { b.Vote(A).Granted(6, now.Add(trust)) },
		"outvoted":        outvoteA,
		"yielded":         func(b *ballot.Ballot) { yieldA(b, queued) },
		"asked again":     func(b *ballot.Ballot) { yieldA(b, absent); b.Vote(A).Ask() },
		"trust is longer": func(*ballot.Ballot) {},
	} {
		t.Run(name, func(t *testing.T) {
			b := asked(ballot.Wait, 3, granted(5), queued, queued)
			ends(b)
			before := *b.Vote(A)
			b.Vote(A).Granted(5, tooLate.Add(trust))
			b.Vote(A).Granted(4, tooLate.Add(trust))
			require.Equal(t, before, *b.Vote(A))
		})
	}
}

func yieldA(b *ballot.Ballot, answer ballot.Answer) {
	b.Next(nil)
	b.Vote(A).Yielded(5, answer)
}

func outvoteA(b *ballot.Ballot) {
	b.Vote(B).Granted(5, now.Add(trust))
	b.Decide(now, anywhere)
	b.Vote(A).Renewing(5)
	b.Vote(A).Renewed(5, absent, now)
}

func TestRefreshes(t *testing.T) {
	for name, test := range map[string]struct {
		answer ballot.Answer
		again  bool
		state  ballot.State
		live   bool
	}{
		"still queued":          {queued, false, ballot.Queued, true},
		"unknown there":         {absent, true, ballot.Unasked, false},
		"not answered":          {silent, false, ballot.Queued, true},
		"denied, but it waits":  {denied, false, ballot.Failed, true},
		"the key was taken":     {conflict, false, ballot.Failed, true},
		"did not reach anybody": {down, false, ballot.Queued, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := asked(ballot.Wait, 1, queued)
			require.Equal(t, test.again, b.Vote(A).Refreshed(test.answer))
			require.Equal(t, test.state, b.Vote(A).State)
			require.Equal(t, test.live, b.Vote(A).MayBeHeld())
			require.Equal(t, test.answer.Err, b.Vote(A).Err)
		})
	}
}

func TestWhenAGrantIsOfferedBack(t *testing.T) {
	requested := func(b *ballot.Ballot) { b.Vote(A).YieldRequested() }
	for name, test := range map[string]struct {
		entry ballot.Entry
		votes votes
		then  func(*ballot.Ballot)
		want  []ballot.Action
	}{
		"votes are split":            {ballot.Wait, votes{granted(1), queued, queued}, nil, []ballot.Action{yield(A, 1)}},
		"an answer is to come":       {ballot.Wait, votes{granted(1), queued}, nil, nil},
		"the answer is late":         {ballot.Wait, votes{granted(1), queued}, late, []ballot.Action{yield(A, 1)}},
		"nobody else has any":        {ballot.Wait, votes{granted(1), down, down}, nil, nil},
		"an older hold asks for it":  {ballot.Wait, votes{granted(1)}, requested, []ballot.Action{yield(A, 1)}},
		"a quorum has granted":       {ballot.Wait, votes{granted(1), granted(1), queued}, requested, nil},
		"a try is over soon":         {ballot.Try, votes{granted(1)}, requested, nil},
		"a join stands on its hold":  {ballot.Join, votes{granted(1)}, requested, nil},
		"asked for before the grant": {ballot.Wait, nil, early, []ballot.Action{yield(A, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := asked(test.entry, 3, test.votes...)
			if test.then != nil {
				test.then(b)
			}
			b.Decide(now, anywhere)
			require.Equal(t, test.want, b.Next(nil))
			require.Empty(t, b.Next(nil), "once")
		})
	}
}

func late(b *ballot.Ballot) {
	b.Next(nil) // it is still awaited
	b.Vote(C).Late(errSilent)
}

func early(b *ballot.Ballot) {
	b.Vote(A).YieldRequested()
	b.Vote(A).Answered(granted(1))
}

// yielding returns a ballot of split votes, where A's grant of token 1 is being offered back.
func yielding(t *testing.T) *ballot.Ballot {
	b := asked(ballot.Wait, 3, granted(1), queued, queued)
	require.Equal(t, []ballot.Action{yield(A, 1)}, b.Next(nil))
	return b
}

func TestAnswersToAYield(t *testing.T) {
	for name, test := range map[string]struct {
		answer ballot.Answer
		state  ballot.State
		counts bool
	}{
		"kept with a new token":   {granted(3), ballot.Granted, true},
		"kept with the old one":   {granted(1), ballot.Granted, false},
		"back in the queue":       {queued, ballot.Queued, false},
		"unknown there":           {absent, ballot.Unasked, false},
		"not answered":            {silent, ballot.Granted, false},
		"did not run":             {down, ballot.Granted, false},
		"denied: the grant is it": {denied, ballot.Failed, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := yielding(t)
			b.Vote(A).Yielded(1, test.answer)
			v := b.Vote(A)
			require.Equal(t, test.state, v.State)
			require.Equal(t, test.counts, v.Counts())
			require.Equal(t, test.state != ballot.Unasked, v.MayBeHeld())
			require.Equal(t, test.answer.Err, v.Err)
			b.Vote(B).Granted(3, now.Add(trust))
			require.Equal(t, test.counts, reported(b, now) == 3)
		})
	}
}

func TestAYieldWithoutAnAnswerIsSentAgain(t *testing.T) {
	b := yielding(t)
	require.Empty(t, b.Remind(A, nil), "not before its answer")
	b.Vote(A).Yielded(1, silent)
	require.Empty(t, b.Next(nil))
	require.Equal(t, []ballot.Action{yield(A, 1)}, b.Remind(A, nil))
	b.Vote(A).Yielded(1, queued)
	require.Equal(t, ballot.Queued, b.Vote(A).State)
}

func TestTheLargestTokenOfferedBackIsRemembered(t *testing.T) {
	b := asked(ballot.Wait, 3, granted(5), queued, queued)
	b.Next(nil)
	b.Vote(A).Yielded(5, absent)
	b.Vote(A).Ask()
	b.Vote(A).Answered(granted(3)) // a snapshot of A has brought back an older grant
	require.False(t, b.Vote(A).Counts())
	require.Equal(t, []ballot.Action{yield(A, 3)}, b.Remind(A, nil))
	b.Vote(A).Yielded(3, queued)
	b.Vote(B).Granted(5, now.Add(trust))
	b.Vote(A).Granted(5, now.Add(trust)) // the message of the first grant, late
	require.Equal(t, ballot.Open, verdict(b, now))
	require.Equal(t, ballot.Queued, b.Vote(A).State)
}
