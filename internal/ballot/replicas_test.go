package ballot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/ballot"
)

// short is the answer of a master that has granted the hold, and too few of whose replicas have it.
var short = ballot.Answer{Status: ballot.NoAnswer, Err: errSilent, Unknown: true, Permanent: true, Short: true}

func TestTooFewReplicas(t *testing.T) {
	for name, test := range map[string]struct {
		entry ballot.Entry
		votes votes
		want  ballot.Verdict
	}{
		"of a single master":          {ballot.Wait, votes{short}, ballot.Short},
		"of one of three":             {ballot.Wait, votes{short, granted(2), granted(2)}, ballot.Held},
		"of one, and others to come":  {ballot.Try, votes{short, granted(2)}, ballot.Open},
		"of two":                      {ballot.Wait, votes{short, granted(2), short}, ballot.Short},
		"of one, and one is down":     {ballot.Wait, votes{short, granted(2), down}, ballot.Open},
		"of one, and one is down now": {ballot.Try, votes{short, granted(2), down}, ballot.NoQuorum},
		"of one, and one is denied":   {ballot.Wait, votes{short, granted(2), denied}, ballot.Short},
		"and a key is not ours":       {ballot.Wait, votes{short, conflict, granted(2)}, ballot.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			masters := 3
			if len(test.votes) == 1 {
				masters = 1
			}
			b := asked(test.entry, masters, test.votes...)
			require.Equal(t, test.want, verdict(b, now))
			require.True(t, b.Vote(A).MayBeHeld(), "it is to be released")
			require.True(t, b.Vote(A).MayArriveLate())
		})
	}
}

func TestAGrantIsConfirmedBeforeItCounts(t *testing.T) {
	for name, test := range map[string]struct {
		answer ballot.Answer
		state  ballot.State
		want   ballot.Verdict
	}{
		"confirmed":        {granted(5), ballot.Granted, ballot.Held},
		"too few replicas": {short, ballot.Failed, ballot.Short},
		"gone":             {absent, ballot.Queued, ballot.Open},
		"not answered":     {silent, ballot.Queued, ballot.Open},
		"denied":           {denied, ballot.Failed, ballot.NoQuorum},
	} {
		t.Run(name, func(t *testing.T) {
			b := asked(ballot.Wait, 1, queued)
			require.True(t, b.Vote(A).Confirming(5))
			require.False(t, b.Vote(A).Confirming(5), "one at a time")
			require.Equal(t, ballot.Open, verdict(b, now))
			b.Vote(A).Confirmed(5, test.answer)
			require.Equal(t, test.state, b.Vote(A).State)
			require.Equal(t, test.want, verdict(b, now))
			require.True(t, b.Vote(A).MayBeHeld())
		})
	}
}

func TestWhatIsNotConfirmed(t *testing.T) {
	b := asked(ballot.Wait, 3, granted(5), queued, queued)
	require.False(t, b.Vote(A).Confirming(5), "it counts already")
	b.Next(nil)
	require.False(t, b.Vote(A).Confirming(7), "its yield is under way")
	b.Vote(A).Yielded(5, queued)
	require.False(t, b.Vote(A).Confirming(5), "it was offered back")
	require.True(t, b.Vote(A).Confirming(7))

	b.Vote(B).Confirmed(7, granted(7))
	require.Equal(t, ballot.Queued, b.Vote(B).State, "nobody asked")
}

// A message overtakes the answer that the hold is queued, and is confirmed first or last.
func TestAnAnswerDuringAConfirmation(t *testing.T) {
	for name, answer := range map[string]ballot.Answer{"queued": queued, "not answered": silent, "did not run": down} {
		t.Run(name, func(t *testing.T) {
			b := asked(ballot.Wait, 1)
			b.Vote(A).Confirming(5)
			b.Vote(A).Answered(answer)
			require.Equal(t, ballot.Open, verdict(b, now))
			b.Vote(A).Confirmed(5, granted(5))
			require.EqualValues(t, 5, reported(b, now))
		})
	}
}
