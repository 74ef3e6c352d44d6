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
			require.True(t, b.Renewing(A, 2))
			require.True(t, b.RenewalsUnderWay())
			require.False(t, b.Renewing(A, 2), "one at a time")
			b.Renewed(A, test.answer, later)
			require.False(t, b.RenewalsUnderWay())
			require.Equal(t, test.standing, b.Standing(2))
			require.Equal(t, test.answer.Err, b.Vote(A).Err)
			require.Equal(t, test.renewed, b.Vote(A).Until == longer)
			require.True(t, b.Vote(A).Live())
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
			require.False(t, test.b.Renewing(test.master, 2))
			require.False(t, test.b.RenewalsUnderWay())
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
	b.YieldRequested(A)
	b.Next(nil)
	b.Yielded(A, 2, silent)
	return b
}

// outvoted is a ballot whose hold of token 2 is gone from A.
func outvoted() *ballot.Ballot {
	b := holding()
	b.Renewing(A, 2)
	b.Renewed(A, absent, now)
	return b
}

func TestARenewalOfOneMasterCountsWhileItIsTrusted(t *testing.T) {
	b := asked(ballot.Wait, 1, granted(2))
	b.Decide(now)
	b.Renewing(A, 2)
	b.Renewed(A, grantedUntil(2, tooLate.Add(trust)), tooLate)
	require.Zero(t, b.Standing(2))
}

func TestTheAnswerToNoRenewal(t *testing.T) {
	b := holding()
	b.Renewed(A, absent, now)
	require.Equal(t, 2, b.Standing(2))
}

func TestARenewalSaysNothingOfALaterGrant(t *testing.T) {
	b := holding()
	b.Renewing(A, 2)
	b.Granted(A, 7, later)
	b.Renewed(A, absent, now)
	require.Equal(t, 1, b.Standing(7))
}

func TestTrustMovesWithAQuorumOfRenewals(t *testing.T) {
	b := holding(granted(2))
	for i := range b.Masters() {
		b.Renewing(i, 2)
	}
	b.Renewed(A, grantedUntil(2, tooLate.Add(trust)), later)
	until, ok := b.TrustedUntil(2)
	require.True(t, ok)
	require.Equal(t, now.Add(trust), until)
	b.Renewed(C, grantedUntil(2, tooLate.Add(trust/2)), later)
	until, _ = b.TrustedUntil(2)
	require.Equal(t, tooLate.Add(trust/2), until)
	b.Renewed(A, absent, later)
	_, ok = b.TrustedUntil(3)
	require.False(t, ok)
}
