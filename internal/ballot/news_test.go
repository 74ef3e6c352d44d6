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

func TestAGrantEndsAFailure(t *testing.T) {
	b := asked(ballot.Wait, 3, silent)
	b.Vote(A).Granted(4, now.Add(trust))
	require.Equal(t, 1, b.Votes().Answers())
	require.NoError(t, b.Vote(A).Err)
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

func TestAnAnswerBringsAGrantThatWasOfferedBackAndOffersItAgain(t *testing.T) {
	b := asked(ballot.Wait, 3, granted(5), queued, queued)
	yieldA(b, absent)
	b.Vote(A).Ask()
	b.Vote(A).Answered(granted(5))
	require.True(t, b.Vote(A).MayBeHeld())
	require.False(t, b.Vote(A).Counts())
	require.Equal(t, []ballot.Action{yield(A, 5)}, b.Remind(A, nil))
}

func TestAnAnswerOfARequestThatIsOver(t *testing.T) {
	b := asked(ballot.Wait, 3, queued)
	b.Vote(A).Answered(refused)
	require.Equal(t, ballot.Queued, b.Vote(A).State)
	b.Vote(A).Refreshed(absent)
	b.Vote(A).Answered(queued)
	require.Equal(t, ballot.Unasked, b.Vote(A).State)
}

func TestHandedOff(t *testing.T) {
	message := func(b *ballot.Ballot) { b.Vote(A).Granted(5, now.Add(trust)) }
	for name, test := range map[string]struct {
		votes votes
		then  func(*ballot.Ballot)
		want  bool
	}{
		"granted at once":                  {votes{granted(5), granted(5)}, nil, false},
		"by message":                       {votes{queued, granted(5)}, message, true},
		"a yield kept it":                  {votes{granted(3), granted(5), queued}, keptA, true},
		"outvoted since":                   {votes{queued, granted(5)}, lost, false},
		"to a request without an answer":   {votes{silent, granted(5)}, askedAgain, true},
		"to a request that never ran":      {votes{down, granted(5)}, askedAgain, false},
		"by message, and had had no token": {votes{silent, granted(5)}, message, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := asked(ballot.Wait, 3, test.votes...)
			if test.then != nil {
				test.then(b)
			}
			require.Equal(t, test.want, b.Votes().HandedOff())
		})
	}
}

func keptA(b *ballot.Ballot) {
	b.Vote(A).YieldRequested()
	b.Next(nil)
	b.Vote(A).Yielded(3, granted(5))
}

func askedAgain(b *ballot.Ballot) {
	b.Vote(A).Ask()
	b.Vote(A).Answered(granted(5))
}

func lost(b *ballot.Ballot) {
	b.Vote(A).Granted(5, now.Add(trust))
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

func TestARefreshSaysNothingOfAHoldThatDoesNotWait(t *testing.T) {
	for _, answer := range []ballot.Answer{silent, granted(5), refused} {
		b := asked(ballot.Wait, 1, answer)
		before := *b.Vote(A)
		require.False(t, b.Vote(A).Refreshed(absent))
		require.Equal(t, before, *b.Vote(A))
	}
}
