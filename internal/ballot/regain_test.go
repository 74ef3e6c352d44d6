package ballot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
)

func TestWhereAHoldIsRegained(t *testing.T) {
	for name, test := range map[string]struct {
		b       *ballot.Ballot
		master  int
		at      clock.Instant
		trusted bool
		sent    bool
	}{
		"gone, and still trusted":        {outvoted(), A, later, true, true},
		"gone, and trusted no more":      {outvoted(), A, tooLate, false, true},
		"refused":                        {holding(refused), C, now, false, true},
		"waits there":                    {holding(queued), C, now, false, true},
		"failed":                         {holding(silent), C, now, false, true},
		"its raise was refused":          {raiseRefused(), C, now, false, true},
		"asked, and not answered":        {holding(), C, now, false, false},
		"stands there":                   {holding(), A, now, false, false},
		"stands there with another":      {holding(granted(7)), C, now, false, false},
		"another stood there":            {holding(granted(7)), C, tooLate, false, true},
		"stood there, and was not heard": {holding(), A, tooLate, false, true},
		"is being raised":                {raisingC(), C, now, false, false},
		"is being renewed":               {renewingA(), A, tooLate, false, false},
		"was offered back":               {offeredBackAndHeld(), C, now, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			trusted, ok := test.b.Vote(test.master).Regaining(2, test.at)
			require.Equal(t, test.sent, ok)
			require.Equal(t, test.trusted, trusted)
			if ok {
				_, again := test.b.Vote(test.master).Regaining(2, test.at)
				require.False(t, again, "one at a time")
			}
		})
	}
}

func raiseRefused() *ballot.Ballot {
	b := raisingC()
	b.Vote(C).Raised(2, refused)
	return b
}

func renewingA() *ballot.Ballot {
	b := holding()
	b.Vote(A).Renewing(2)
	return b
}

// offeredBackAndHeld holds token 2 on A and B; C had granted it as well, and was offered it back.
func offeredBackAndHeld() *ballot.Ballot {
	b := asked(ballot.Wait, 3)
	b.Vote(C).Answered(granted(2))
	b.Vote(C).YieldRequested()
	b.Next(nil)
	b.Vote(C).Yielded(2, absent)
	b.Vote(A).Answered(granted(2))
	b.Vote(B).Answered(granted(2))
	b.Decide(now, anywhere)
	return b
}

func TestAnswersToARegain(t *testing.T) {
	for name, test := range map[string]struct {
		answer     ballot.Answer
		standing   int
		unanswered bool
	}{
		"regained":      {granted(2), 3, false},
		"refused":       {absent, 2, false},
		"another token": {granted(3), 2, false},
		"not answered":  {silent, 2, true},
		"did not run":   {down, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := holding(refused)
			b.Vote(C).Regaining(2, now)
			require.True(t, b.Vote(C).MayArriveLate(), "it may come after a release that finds the hold")
			b.Vote(C).Regained(2, test.answer)
			require.Equal(t, test.standing, b.Votes().Standing(2))
			require.Equal(t, test.unanswered, b.Vote(C).Unanswered())
			require.Equal(t, test.answer.Err, b.Vote(C).Err)
			_, again := b.Vote(C).Regaining(2, now)
			require.Equal(t, test.standing == 2, again)
		})
	}
}

func TestARegainIsTrustedOnlyForTheTokenThatStoodThere(t *testing.T) {
	b := raiseRefused() // C's own grant, of token 1, is trusted still
	trusted, ok := b.Vote(C).Regaining(2, now)
	require.True(t, ok)
	require.False(t, trusted)
}

func TestTheAnswerToNoRegain(t *testing.T) {
	b := holding(refused)
	b.Vote(C).Regained(2, granted(2))
	require.Equal(t, 2, b.Votes().Standing(2))
}

func TestAMessageDuringARegainLeavesItUnderWay(t *testing.T) {
	b := holding(queued)
	b.Vote(C).Regaining(2, now)
	b.Vote(C).Granted(7, now.Add(trust)) // handed off before the regain came
	require.True(t, b.Vote(C).Unanswered())
	b.Vote(C).Regained(2, silent)
	require.True(t, b.Vote(C).Unanswered())
}
