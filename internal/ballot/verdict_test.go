package ballot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
)

type votes = []ballot.Answer

func TestVerdictOfOneMaster(t *testing.T) {
	for name, test := range map[string]struct {
		entry ballot.Entry
		votes votes
		want  ballot.Verdict
	}{
		"granted":                    {ballot.Wait, votes{granted(5)}, ballot.Held},
		"granted too late":           {ballot.Wait, votes{grantedUntil(5, now)}, ballot.TooLate},
		"queued":                     {ballot.Wait, votes{queued}, ballot.Open},
		"not answered, and waits":    {ballot.Wait, votes{silent}, ballot.Open},
		"denied":                     {ballot.Wait, votes{denied}, ballot.NoQuorum},
		"a key holds something else": {ballot.Wait, votes{conflict}, ballot.Conflict},
		"try: not answered yet":      {ballot.Try, nil, ballot.Open},
		"try: refused":               {ballot.Try, votes{refused}, ballot.Contended},
		"try: not answered":          {ballot.Try, votes{down}, ballot.NoQuorum},
		"join: granted":              {ballot.Join, votes{granted(5)}, ballot.Held},
		"join: absent":               {ballot.Join, votes{absent}, ballot.Absent},
		"join: the owner reads":      {ballot.Join, votes{reading}, ballot.OnlyReads},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, verdict(asked(test.entry, 1, test.votes...), now))
		})
	}
}

func TestVerdictOfThreeMasters(t *testing.T) {
	for name, test := range map[string]struct {
		entry ballot.Entry
		votes votes
		want  ballot.Verdict
	}{
		"a quorum grants":                {ballot.Wait, votes{granted(5), granted(5)}, ballot.Held},
		"one grants":                     {ballot.Wait, votes{granted(5), queued, queued}, ballot.Open},
		"nobody answers, and waits":      {ballot.Wait, votes{silent, silent, silent}, ballot.Open},
		"one denies":                     {ballot.Wait, votes{denied, queued, queued}, ballot.Open},
		"two deny":                       {ballot.Wait, votes{denied, denied, queued}, ballot.NoQuorum},
		"two deny, one for its key":      {ballot.Wait, votes{denied, conflict, queued}, ballot.Conflict},
		"try: one refuses":               {ballot.Try, votes{refused}, ballot.Open},
		"try: two refuse":                {ballot.Try, votes{refused, refused}, ballot.Contended},
		"try: granted, refused, down":    {ballot.Try, votes{granted(5), refused, down}, ballot.Contended},
		"try: granted, down, open":       {ballot.Try, votes{granted(5), down}, ballot.Open},
		"try: refused, down, open":       {ballot.Try, votes{refused, down}, ballot.Open},
		"try: two down":                  {ballot.Try, votes{down, down}, ballot.NoQuorum},
		"try: granted, two down":         {ballot.Try, votes{granted(5), down, down}, ballot.NoQuorum},
		"try: granted, refused, open":    {ballot.Try, votes{granted(5), refused}, ballot.Open},
		"try: raised, one to come":       {ballot.Try, votes{granted(4), granted(5)}, ballot.Open},
		"join: a quorum, one token":      {ballot.Join, votes{granted(5), granted(5)}, ballot.Held},
		"join: a quorum, two tokens":     {ballot.Join, votes{granted(4), granted(5)}, ballot.Open},
		"join: three tokens":             {ballot.Join, votes{granted(4), granted(5), granted(6)}, ballot.NoQuorum},
		"join: two of three agree":       {ballot.Join, votes{granted(4), granted(5), granted(4)}, ballot.Held},
		"join: two absent":               {ballot.Join, votes{absent, absent}, ballot.Absent},
		"join: one absent, two to come":  {ballot.Join, votes{absent}, ballot.Open},
		"join: reads, and one absent":    {ballot.Join, votes{absent, reading}, ballot.OnlyReads},
		"join: absent, down, one open":   {ballot.Join, votes{absent, down}, ballot.Open},
		"join: absent, down, and absent": {ballot.Join, votes{absent, down, absent}, ballot.Absent},
		"join: granted, absent, down":    {ballot.Join, votes{granted(5), absent, down}, ballot.NoQuorum},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, verdict(asked(test.entry, 3, test.votes...), now))
		})
	}
}

func TestTrustIsThatOfTheQuorumTrustedLongest(t *testing.T) {
	b := asked(ballot.Wait, 3, grantedUntil(5, later), granted(5), grantedUntil(5, tooLate.Add(trust)))
	v, token, until := b.Decide(now, anywhere)
	require.Equal(t, ballot.Held, v)
	require.EqualValues(t, 5, token)
	require.Equal(t, now.Add(trust), until)
	require.Equal(t, ballot.TooLate, verdict(b, tooLate))
}

func TestVerdictDoesNotWaitForASlowMaster(t *testing.T) {
	b := asked(ballot.Try, 3, refused, down)
	require.Equal(t, ballot.Open, verdict(b, now))
	b.Vote(C).Late(errSilent)
	require.Equal(t, ballot.NoQuorum, verdict(b, now))
	b.Vote(C).Answered(refused)
	require.Equal(t, ballot.Contended, verdict(b, now), "its answer counts when it comes")
}

func TestASlowMasterIsAwaitedWhenItIsAskedAnew(t *testing.T) {
	b := asked(ballot.Try, 3, refused, down)
	b.Vote(C).Late(errSilent)
	b.Vote(C).Answered(down)
	require.Equal(t, ballot.NoQuorum, verdict(b, now))
	b.Vote(C).Ask()
	require.Equal(t, ballot.Open, verdict(b, now))
}

func TestAnAnswerWithAFailureSinceIsNone(t *testing.T) {
	b := asked(ballot.Wait, 3, queued, queued)
	require.Equal(t, 2, b.Votes().Answers())
	require.Equal(t, ballot.Contended, b.Votes().WaitFailure())
	b.Vote(B).Refreshed(down)
	require.Equal(t, 1, b.Votes().Answers())
	require.Equal(t, ballot.NoQuorum, b.Votes().WaitFailure())
	b.Vote(B).Refreshed(queued)
	require.Equal(t, 2, b.Votes().Answers())
}

func TestAMasterThatWasOutvotedHasAnswered(t *testing.T) {
	b := asked(ballot.Wait, 3, granted(1), granted(2))
	b.Decide(now, anywhere)
	b.Next(nil)
	b.Vote(A).Raised(2, refused)
	require.Equal(t, ballot.Contended, b.Votes().WaitFailure())
}

// One whose waiting ends while a quorum has granted, without a token that they agree on, is not told that others hold
// the lock.
func TestGrantsWithoutACommonTokenKeepNobodyOut(t *testing.T) {
	b := asked(ballot.Wait, 3, granted(1), granted(9))
	b.Decide(now, func(int) fencing.Token { return 5 })
	require.Zero(t, b.Target())
	require.Equal(t, ballot.NoQuorum, b.Votes().WaitFailure())
}

func TestTheTargetIsTheSmallestThatAQuorumCanReach(t *testing.T) {
	b := asked(ballot.Wait, 3, granted(3), granted(1), granted(2))
	b.Decide(now, anywhere)
	require.Equal(t, []ballot.Action{raise(B, 2)}, b.Next(nil))
}

func TestABallotIsUsedAgain(t *testing.T) {
	b := asked(ballot.Wait, 3, granted(5), granted(5))
	require.Equal(t, ballot.Held, verdict(b, now))
	b.Start(ballot.Wait, 3)
	require.Equal(t, ballot.Open, verdict(b, now))
	require.Equal(t, ballot.Vote{}, *b.Vote(A))
	b.Start(ballot.Try, 1)
	require.Equal(t, 1, b.Votes().Masters())
	b.Vote(A).Ask()
	b.Vote(A).Answered(granted(3))
	require.EqualValues(t, 3, reported(b, now))
	b.Start(ballot.Try, 1)
	require.Equal(t, ballot.Vote{}, *b.Vote(A))
}
