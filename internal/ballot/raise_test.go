package ballot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
)

// raising returns a ballot with the target 2, where C is queued and A is being raised to it.
func raising(t *testing.T) *ballot.Ballot {
	b := asked(ballot.Wait, 3, granted(1), granted(2), queued)
	require.Equal(t, ballot.Open, verdict(b, now))
	require.Equal(t, []ballot.Action{raise(A, 2)}, b.Next(nil))
	return b
}

func TestAnswersToARaise(t *testing.T) {
	for name, test := range map[string]struct {
		answer ballot.Answer
		want   ballot.Verdict
		live   bool
	}{
		"raised":                       {granted(2), ballot.Held, true},
		"raised too late":              {grantedUntil(2, now), ballot.TooLate, true},
		"not held there any more":      {refused, ballot.TooLate, true},
		"did not run: the grant is it": {down, ballot.TooLate, true},
		"not answered":                 {silent, ballot.TooLate, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := raising(t)
			b.Vote(A).Raised(2, test.answer)
			require.Equal(t, test.want, verdict(b, now))
			require.Equal(t, test.live, b.Vote(A).MayBeHeld())
			require.Empty(t, b.Next(nil), "it is not raised again")
		})
	}
}

// A target that too few masters can be raised to is not decided while one that is to answer could make for another.
func TestATargetThatCannotBeReached(t *testing.T) {
	const far = 9
	near, atB := reach{5, 5, 5}, reach{5, far + 1, 5}
	for name, test := range map[string]struct {
		reach  reach
		votes  votes
		then   func(*ballot.Ballot)
		target fencing.Token
	}{
		"one is to answer":           {near, votes{granted(1), granted(far)}, nil, 0},
		"it can be reached":          {reach{far, 5, 5}, votes{granted(1), granted(far)}, nil, far},
		"it makes for a smaller one": {near, votes{granted(far), granted(1), granted(2)}, nil, 2},
		"it agrees":                  {near, votes{granted(1), granted(far), granted(far)}, nil, far},
		"it is nearer":               {near, votes{granted(1), granted(far), granted(4)}, nil, 4},
		"it makes for a larger one":  {atB, votes{granted(1), granted(far), granted(far + 1)}, nil, far + 1},
		"it does not help":           {near, votes{granted(1), granted(far), queued}, nil, far},
		"it has failed":              {near, votes{granted(1), granted(far), down}, nil, far},
		"it is late":                 {near, votes{granted(1), granted(far)}, late, far},
	} {
		t.Run(name, func(t *testing.T) {
			b := asked(ballot.Wait, 3, test.votes...)
			if test.then != nil {
				test.then(b)
			}
			b.Decide(now, func(master int) fencing.Token { return test.reach[master] })
			require.Equal(t, test.target, b.Target())
		})
	}
}

// reach is the largest token that each of three masters can be raised to.
type reach [3]fencing.Token

func TestARaiseIsSentOnce(t *testing.T) {
	b := raising(t)
	require.Empty(t, b.Next(nil))
	require.Empty(t, b.Remind(A, nil))
}

func TestAfterARaiseWithoutAnswerTheMasterIsAsked(t *testing.T) {
	b := asked(ballot.Wait, 3, granted(1), granted(2))
	b.Decide(now, anywhere)
	b.Next(nil)
	b.Vote(A).Raised(2, silent)
	require.Equal(t, ballot.Failed, b.Vote(A).State)
	require.Equal(t, errSilent, b.Vote(A).Err)
	b.Vote(A).Ask()
	b.Vote(A).Answered(granted(1)) // it has not run
	require.Equal(t, []ballot.Action{raise(A, 2)}, b.Next(nil))
	b.Vote(A).Raised(2, granted(2))
	require.EqualValues(t, 2, reported(b, now))
}

func TestALateGrantIsRaisedToTheTokenThatIsHeld(t *testing.T) {
	b := holding()
	b.Vote(C).Answered(granted(1))
	require.Equal(t, []ballot.Action{raise(C, 2)}, b.Next(nil))
	b.Vote(C).Raised(2, granted(2))
	require.Equal(t, 3, b.Votes().Standing(2))
}

func TestAGrantThatCameDuringARaiseIsNotTheRaisedOne(t *testing.T) {
	b := raising(t)
	b.Vote(A).Granted(4, now.Add(trust))
	b.Vote(A).Raised(2, granted(2))
	require.Equal(t, ballot.TooLate, verdict(b, now), "A has gone past the target")
}

func TestAnUnknownAnswerToARaiseIsNoGrant(t *testing.T) {
	b := raising(t)
	b.Vote(B).Raised(2, granted(2)) // B was not raised
	b.Vote(A).Raised(2, granted(1))
	require.Equal(t, ballot.TooLate, verdict(b, now))
}

func TestAJoinRaisesNothing(t *testing.T) {
	b := asked(ballot.Join, 3, granted(2), granted(2), granted(1))
	require.EqualValues(t, 2, reported(b, now))
	require.Empty(t, b.Next(nil))
	b = asked(ballot.Join, 3, grantedUntil(2, now), granted(2), granted(1))
	require.Equal(t, ballot.TooLate, verdict(b, now))
}

func TestAJoinCannotReachATokenThatOthersHave(t *testing.T) {
	b := asked(ballot.Join, 3, granted(2), granted(2))
	b.Decide(now, anywhere)
	b.Vote(B).Renewing(2)
	b.Vote(B).Renewed(2, absent, now)
	require.Equal(t, ballot.Open, verdict(b, now), "C has yet to answer")
	b.Vote(C).Answered(granted(1))
	require.Equal(t, ballot.TooLate, verdict(b, now))
}
