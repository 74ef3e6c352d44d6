package ballot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/ballot"
)

// What a release owes to a master, for whatever is known of the hold there.
func TestWhatAReleaseHasToReach(t *testing.T) {
	wait := func(a ...ballot.Answer) *ballot.Ballot { return asked(ballot.Wait, 3, a...) }
	for name, test := range map[string]struct {
		b                            *ballot.Ballot
		live, unanswered, straggling bool
	}{
		"never asked":                   {new3(), false, false, false},
		"asked":                         {wait(), true, true, false},
		"queued":                        {wait(queued), true, false, false},
		"granted":                       {wait(granted(2)), true, false, false},
		"refused":                       {wait(refused), false, false, false},
		"never reached":                 {wait(down), false, false, false},
		"no answer":                     {wait(silent), true, true, true},
		"no answer, then refused":       {again(refused), true, true, true},
		"no answer, then granted":       {again(granted(2)), true, true, true},
		"no answer, then never reached": {again(down), true, true, true},
		"outvoted":                      {outvoted(), true, false, false},
		"being renewed":                 {renewingA(), true, false, false},
		"being raised":                  {raisingA(), true, false, false},
		"being offered back":            {beingOfferedBack(), true, false, false},
		"its raise has no answer":       {raiseUnanswered(), true, true, true},
		"its yield has no answer":       {offeredBack(), true, false, false},
		"granted before the answer":     {grantedEarly(), true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := test.b.Vote(A)
			require.Equal(t, test.live, v.MayBeHeld(), "live")
			require.Equal(t, test.unanswered, v.Unanswered(), "unanswered")
			require.Equal(t, test.straggling, v.MayArriveLate(), "straggles")
		})
	}
}

func new3() *ballot.Ballot {
	b := new(ballot.Ballot)
	b.Start(ballot.Wait, 3)
	return b
}

// again is a request without an answer, and one after it with this one.
func again(a ballot.Answer) *ballot.Ballot {
	b := asked(ballot.Wait, 3, silent)
	b.Vote(A).Ask()
	b.Vote(A).Answered(a)
	return b
}

func raisingA() *ballot.Ballot {
	b := asked(ballot.Wait, 3, granted(1), granted(2))
	b.Decide(now, anywhere)
	b.Next(nil)
	return b
}

func raiseUnanswered() *ballot.Ballot {
	b := raisingA()
	b.Vote(A).Raised(2, silent)
	return b
}

func grantedEarly() *ballot.Ballot {
	b := asked(ballot.Wait, 3)
	b.Vote(A).Granted(2, now.Add(trust))
	return b
}

func TestPending(t *testing.T) {
	b := new3()
	require.True(t, b.Vote(A).Pending())
	b.Vote(A).Ask()
	require.True(t, b.Vote(A).Pending())
	b.Vote(A).Late(errSilent)
	require.False(t, b.Vote(A).Pending())
	require.Equal(t, errSilent, b.Vote(A).Err)
	b.Vote(B).Late(errSilent)
	require.Equal(t, ballot.Unasked, b.Vote(B).State, "a master that was not asked is not late")
	require.NoError(t, b.Vote(B).Err)
}

func TestOnlyOneThatHasNothingIsAsked(t *testing.T) {
	for _, a := range []ballot.Answer{queued, granted(2), refused} {
		b := asked(ballot.Wait, 3, a)
		state := b.Vote(A).State
		b.Vote(A).Ask()
		require.Equal(t, state, b.Vote(A).State)
	}
}

func TestAFailurePassesWithTheNextAnswer(t *testing.T) {
	b := asked(ballot.Wait, 3, conflict, conflict)
	require.Equal(t, ballot.Conflict, verdict(b, now))
	b.Vote(A).Ask()
	require.Equal(t, ballot.Open, verdict(b, now))
	b.Vote(A).Answered(queued)
	require.Equal(t, ballot.Open, verdict(b, now))
	require.NoError(t, b.Vote(A).Err)
	b.Vote(C).Answered(denied)
	b.Vote(B).Ask()
	b.Vote(B).Answered(denied)
	require.Equal(t, ballot.NoQuorum, verdict(b, now), "nothing of those that fail now is in conflict")
	b.Vote(B).Ask()
	b.Vote(A).Refreshed(absent)
	b.Vote(A).Ask()
	b.Vote(A).Answered(down)
	require.Equal(t, ballot.Open, verdict(b, now), "this one passes by itself")
}

func beingOfferedBack() *ballot.Ballot {
	b := asked(ballot.Wait, 3, granted(2), queued, queued)
	b.Next(nil)
	return b
}

func TestAnAnswerThatWasNotAskedForChangesNothing(t *testing.T) {
	answers := []ballot.Answer{granted(1), granted(2), granted(3), queued, refused, absent, silent, denied}
	for _, b := range []*ballot.Ballot{holding(queued), outvoted(), holding(refused), new3()} {
		for i := range b.Votes().Masters() {
			before := *b.Vote(i)
			for _, a := range answers {
				b.Vote(i).Raised(2, a)
				b.Vote(i).Yielded(2, a)
				b.Vote(i).Renewed(2, a, now)
				b.Vote(i).Regained(2, a)
				require.Equal(t, before, *b.Vote(i))
			}
		}
	}
}
