package ballot_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
)

type votes = []ballot.Answer

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
		"join: three tokens":             {ballot.Join, votes{granted(4), granted(5), granted(6)}, ballot.Absent},
		"join: two tokens, one absent":   {ballot.Join, votes{granted(4), absent, granted(5)}, ballot.Absent},
		"join: two tokens, one down":     {ballot.Join, votes{granted(4), down, granted(5)}, ballot.NoQuorum},
		"join: granted, reads, absent":   {ballot.Join, votes{granted(4), reading, absent}, ballot.OnlyReads},
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

// One whose waiting ends while a quorum has granted, without a common token, is not told that others hold the lock.
func TestGrantsWithoutACommonTokenKeepNobodyOut(t *testing.T) {
	b := asked(ballot.Wait, 3, granted(1), granted(9))
	b.Decide(now, func(int) fencing.Token { return 5 })
	require.Zero(t, b.Target())
	require.Equal(t, ballot.NoQuorum, b.Votes().WaitFailure())
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
	founded-false-word
	read-equal raise-counted block-unminted upgrade-unheld
	regain-unconfirmed regain-busy regain-same-id
	passed-forgotten passed-unsettled passed-again yield-to-aside
	settle-unnoticed fork-votes lowers-gone lowers-unnamed lowers-to-token release-unnamed
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

// The masters of three, by name.
const (
	A = iota
	B
	C
)

// trust is how long the grants of these tests are trusted, counted from now.
const trust = 10 * time.Second

var (
	now     = clock.Instant{Mono: time.Hour, Wall: 1_700_000_000 * time.Second}
	later   = now.Add(trust / 2)
	tooLate = now.Add(trust)
)

var (
	errSilent = errors.New("no reply")
	errDown   = errors.New("not connected")
	errDenied = errors.New("NOPERM")
)

// The answers of a master.
var (
	queued  = ballot.Answer{Status: ballot.IsQueued}
	refused = ballot.Answer{Status: ballot.IsRefused}
	absent  = ballot.Answer{Status: ballot.IsAbsent}
	reading = ballot.Answer{Status: ballot.IsReading}

	silent   = ballot.Answer{Status: ballot.NoAnswer, Err: errSilent, Unknown: true}   // it may have run
	down     = ballot.Answer{Status: ballot.NoAnswer, Err: errDown}                    // it has not
	denied   = ballot.Answer{Status: ballot.NoAnswer, Err: errDenied, Permanent: true} // nor will it ever
	conflict = ballot.Answer{Status: ballot.NoAnswer, Err: errDenied, Permanent: true, Conflict: true}
)

func granted(token fencing.Token) ballot.Answer { return grantedUntil(token, now.Add(trust)) }

func grantedUntil(token fencing.Token, until clock.Instant) ballot.Answer {
	return ballot.Answer{Status: ballot.IsGranted, Token: token, Until: until}
}

// asked returns a ballot whose masters have all been asked, and have given these answers, if any.
func asked(entry ballot.Entry, masters int, answers ...ballot.Answer) *ballot.Ballot {
	b := new(ballot.Ballot)
	b.Start(entry, masters)
	for i := range masters {
		b.Vote(i).Ask()
	}
	for i, a := range answers {
		b.Vote(i).Answered(a)
	}
	return b
}

// holding returns a ballot of three masters that holds token 2 on A and B, and has the given answer of C.
func holding(c ...ballot.Answer) *ballot.Ballot {
	b := asked(ballot.Wait, 3, append([]ballot.Answer{granted(2), granted(2)}, c...)...)
	b.Decide(now, anywhere)
	return b
}

// anywhere is the reach of masters whose clocks are ahead of all tokens.
func anywhere(int) fencing.Token { return fencing.MaxToken }

func verdict(b *ballot.Ballot, at clock.Instant) ballot.Verdict {
	v, _, _ := b.Decide(at, anywhere)
	return v
}

// reported returns the token that the ballot is held with, 0 if it is not.
func reported(b *ballot.Ballot, at clock.Instant) fencing.Token {
	if v, token, _ := b.Decide(at, anywhere); v == ballot.Held {
		return token
	}
	return 0
}

func raise(master int, token fencing.Token) ballot.Action {
	return ballot.Action{Master: master, Op: ballot.Raise, Token: token}
}

func yield(master int, token fencing.Token) ballot.Action {
	return ballot.Action{Master: master, Op: ballot.Yield, Token: token}
}

func leave(master int, token fencing.Token) ballot.Action {
	return ballot.Action{Master: master, Op: ballot.Leave, Token: token}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
