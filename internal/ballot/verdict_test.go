package ballot_test

import (
	"os"
	"strings"
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

func TestOneMasterCostsNoAllocation(t *testing.T) {
	var b ballot.Ballot
	for _, entry := range []ballot.Entry{ballot.Wait, ballot.Try, ballot.Join} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			b.Start(entry, 1)
			b.Vote(0).Ask()
			b.Vote(0).Answered(granted(5))
			if v, _, _ := b.Decide(now, anywhere); v != ballot.Held || len(b.Next(nil)) > 0 || b.Votes().HandedOff() {
				t.Error("not held")
			}
			b.Vote(0).Renewing(5)
			b.Vote(0).Renewed(5, granted(5), now)
			b.Votes().TrustedUntil(5)
		}))
	}
}

func TestABallotThatIsUsedAgainCostsNoAllocation(t *testing.T) {
	var b ballot.Ballot
	b.Start(ballot.Wait, 5)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b.Start(ballot.Wait, 5)
		for i := range 5 {
			b.Vote(i).Ask()
			b.Vote(i).Answered(granted(5))
		}
		if v, _, _ := b.Decide(now, anywhere); v != ballot.Held {
			t.Error("not held")
		}
	}))
}

// elsewhere are the counterexamples that the client's votes have no part in: the rule that each needs is one of the
// scripts, of the engine or of the storage, and is tested there.
var elsewhere = strings.Fields(`
	no-abstention unchecked-run hear-abstaining
	no-floor floor-if-absent floor-no-end floor-no-bound floor-no-cap floor-no-clock floor-short
	founded-at-once founded-in-time founded-short founded-from-look founded-unmarked founded-moved
	read-equal raise-counted block-unminted upgrade-unheld
	regain-unconfirmed regain-busy regain-same-id
	passed-forgotten passed-unsettled passed-again yield-to-aside
	settle-unnoticed fork-votes
	adopt-unmarked adopt-any-mark adopt-untaken adopt-had-any adopt-ghost adopt-break-untold
	adopt-again adopt-rivals adopt-same-token
	break-frees break-renewable break-mark-expires break-now break-unmarked break-minority
	minimum-ttl minimum-cut minimum-renewed minimum-forgotten minimum-frees minimum-anew minimum-of-quorum
	one-register`)

func TestEveryCounterexampleOfTheModelHasATest(t *testing.T) {
	known := make(map[string]bool)
	for name := range counterexamples {
		known[name] = true
	}
	for _, name := range elsewhere {
		require.False(t, known[name], "%s is listed twice", name)
		known[name] = true
	}
	for _, name := range refutedCases(t) {
		require.True(t, known[name], "the model refutes %s: add its run to the counterexamples", name)
	}
}

// refutedCases returns the names of those cases of the model whose expected outcome is a counterexample.
func refutedCases(t *testing.T) (names []string) {
	cases, err := os.ReadFile("../../redlock/model/cases.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(cases)) {
		f := strings.Split(line, "|")
		if len(f) == 7 && strings.HasPrefix(strings.TrimSpace(f[5]), "refuted") {
			names = append(names, strings.TrimSpace(f[1]))
		}
	}
	require.NotEmpty(t, names)
	return names
}
