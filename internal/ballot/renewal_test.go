package ballot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/ballot"
)

func TestAnswersToARenewal(t *testing.T) {
	longer := tooLate.Add(trust)
	for name, test := range map[string]struct {
		answer   ballot.Answer
		standing int
		renewed  bool
	}{
		"renewed":             {grantedUntil(2, longer), 2, true},
		"gone":                {absent, 1, false},
		"not answered":        {silent, 2, false},
		"denied: asked again": {denied, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := holding()
			require.True(t, b.Vote(A).Renewing(2))
			require.True(t, b.Votes().RenewalsUnderWay())
			require.False(t, b.Vote(A).Renewing(2), "one at a time")
			b.Vote(A).Renewed(2, test.answer, later)
			require.False(t, b.Votes().RenewalsUnderWay())
			require.Equal(t, test.standing, b.Votes().Standing(2))
			require.Equal(t, test.answer.Err, b.Vote(A).Err)
			require.Equal(t, test.renewed, b.Vote(A).Until == longer)
			require.True(t, b.Vote(A).MayBeHeld())
		})
	}
}

func TestWhereARenewalIsNotSent(t *testing.T) {
	for name, test := range map[string]struct {
		b      *ballot.Ballot
		master int
	}{
		"not granted":          {holding(queued), C},
		"another token":        {holding(granted(3)), C},
		"being raised":         {raisingC(), C},
		"offered back":         {offeredBack(), A},
		"gone, as it was told": {outvoted(), A},
	} {
		t.Run(name, func(t *testing.T) {
			require.False(t, test.b.Vote(test.master).Renewing(2))
			require.False(t, test.b.Votes().RenewalsUnderWay())
		})
	}
}

func raisingC() *ballot.Ballot {
	b := holding(granted(1))
	b.Next(nil)
	return b
}

func offeredBack() *ballot.Ballot {
	b := asked(ballot.Wait, 3, granted(2))
	b.Vote(A).YieldRequested()
	b.Next(nil)
	b.Vote(A).Yielded(2, silent)
	return b
}

// outvoted is a ballot whose hold of token 2 is gone from A.
func outvoted() *ballot.Ballot {
	b := holding()
	b.Vote(A).Renewing(2)
	b.Vote(A).Renewed(2, absent, now)
	return b
}

func TestARenewalOfOneMasterCountsWhileItIsTrusted(t *testing.T) {
	b := asked(ballot.Wait, 1, granted(2))
	b.Decide(now, anywhere)
	b.Vote(A).Renewing(2)
	b.Vote(A).Renewed(2, grantedUntil(2, tooLate.Add(trust)), tooLate)
	require.Zero(t, b.Votes().Standing(2))
}

func TestTheAnswerToNoRenewal(t *testing.T) {
	b := holding()
	b.Vote(A).Renewed(2, absent, now)
	require.Equal(t, 2, b.Votes().Standing(2))
}

func TestARenewalSaysNothingOfALaterGrant(t *testing.T) {
	b := holding()
	b.Vote(A).Renewing(2)
	b.Vote(A).Granted(7, later)
	b.Vote(A).Renewed(2, absent, now)
	require.Equal(t, 1, b.Votes().Standing(7))
}

func TestTrustMovesWithAQuorumOfRenewals(t *testing.T) {
	b := holding(granted(2))
	for i := range b.Votes().Masters() {
		b.Vote(i).Renewing(2)
	}
	b.Vote(A).Renewed(2, grantedUntil(2, tooLate.Add(trust)), later)
	until, ok := b.Votes().TrustedUntil(2)
	require.True(t, ok)
	require.Equal(t, now.Add(trust), until)
	b.Vote(C).Renewed(2, grantedUntil(2, tooLate.Add(trust/2)), later)
	until, _ = b.Votes().TrustedUntil(2)
	require.Equal(t, tooLate.Add(trust/2), until)
	b.Vote(A).Renewed(2, absent, later)
	_, ok = b.Votes().TrustedUntil(3)
	require.False(t, ok)
}
