package ballot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
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

func TestAJoinRaisesNothing(t *testing.T) {
	b := asked(ballot.Join, 3, granted(2), granted(2), granted(1))
	require.EqualValues(t, 2, reported(b, now))
	require.Empty(t, b.Next(nil))
	b = asked(ballot.Join, 3, grantedUntil(2, now), granted(2), granted(1))
	require.Equal(t, ballot.TooLate, verdict(b, now))
}

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
		"stands there with a later one":  {holding(granted(7)), C, now, false, true},
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
		"waits there":   {queued, 2, false},
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

// The answer that brings the late grant may come after the answer to the regain that has set it back.
func TestARestoredGrantIsNotOutvotedByItsLateToken(t *testing.T) {
	b := holding(silent)
	_, ok := b.Vote(C).Regaining(2, now)
	require.True(t, ok)
	b.Vote(C).Regained(2, granted(2))
	b.Vote(C).Answered(granted(7))
	b.Vote(C).Granted(8, now.Add(trust))
	require.Equal(t, 3, b.Votes().Standing(2))
}

// A hold that waits for a master has to be released there.
func TestAHoldThatWaitsToBeRegainedMayBeHeld(t *testing.T) {
	b := holding(refused)
	b.Vote(C).Regaining(2, now)
	b.Vote(C).Regained(2, queued)
	require.True(t, b.Vote(C).MayBeHeld())
}

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
			b := holding(refused)
			require.True(t, b.Vote(A).Renewing(2))
			require.True(t, b.Votes().MayRenew())
			require.False(t, b.Vote(A).Renewing(2), "one at a time")
			b.Vote(A).Renewed(2, test.answer, later)
			require.False(t, b.Votes().MayRenew())
			require.Equal(t, test.standing, b.Votes().Standing(2))
			require.Equal(t, test.answer.Err, b.Vote(A).Err)
			require.Equal(t, test.renewed, b.Vote(A).Until == longer)
			require.True(t, b.Vote(A).MayBeHeld())
		})
	}
}

func raisingC() *ballot.Ballot {
	b := holding(granted(1))
	b.Next(nil)
	return b
}

// outvoted is a ballot whose hold of token 2 is gone from A.
func outvoted() *ballot.Ballot {
	b := holding()
	b.Vote(A).Renewing(2)
	b.Vote(A).Renewed(2, absent, now)
	return b
}

// short is the answer of a master that has granted the hold, and too few of whose replicas have it.
var short = ballot.Answer{Status: ballot.NoAnswer, Err: errSilent, Unknown: true, Permanent: true, Short: true}

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
			require.Equal(t, test.answer.Err, b.Vote(A).Err)
			require.True(t, b.Vote(A).MayBeHeld())
		})
	}
}

// A message overtakes the answer that the hold is queued, and is confirmed first or last.
func TestAnAnswerDuringAConfirmation(t *testing.T) {
	for name, answer := range map[string]ballot.Answer{
		"queued": queued, "not answered": silent, "did not run": down, "granted": granted(5),
	} {
		t.Run(name, func(t *testing.T) {
			b := asked(ballot.Wait, 1)
			b.Vote(A).Confirming(5)
			b.Vote(A).Answered(answer)
			require.Equal(t, ballot.Open, verdict(b, now))
			b.Vote(A).Confirmed(5, granted(5))
			require.EqualValues(t, 5, reported(b, now))
			require.True(t, b.Vote(A).Renewing(5))
		})
	}
}

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

func TestWhenAGrantIsOfferedBack(t *testing.T) {
	requested := func(b *ballot.Ballot) { b.Vote(A).YieldRequested() }
	for name, test := range map[string]struct {
		entry ballot.Entry
		votes votes
		then  func(*ballot.Ballot)
		want  []ballot.Action
	}{
		"votes are split":            {ballot.Wait, votes{granted(1), queued, queued}, nil, []ballot.Action{yield(A, 1)}},
		"an answer is to come":       {ballot.Wait, votes{granted(1), queued}, nil, nil},
		"the answer is late":         {ballot.Wait, votes{granted(1), queued}, late, []ballot.Action{yield(A, 1)}},
		"too few answer":             {ballot.Wait, votes{granted(1), down, silent}, nil, []ballot.Action{leave(A, 1)}},
		"... two of which grant it":  {ballot.Wait, votes{granted(1), granted(1), down}, nil, nil},
		"... perhaps":                {ballot.Wait, votes{granted(1), down}, nil, nil},
		"... too late":               {ballot.Wait, votes{granted(1), down}, late, []ballot.Action{leave(A, 1)}},
		"... to a single attempt":    {ballot.Try, votes{granted(1), down, down}, nil, nil},
		"... to an upgrade":          {ballot.Upgrade, votes{granted(1), down, down}, nil, nil},
		"an older hold asks for it":  {ballot.Wait, votes{granted(1)}, requested, []ballot.Action{yield(A, 1)}},
		"a quorum has granted":       {ballot.Wait, votes{granted(1), granted(1), queued}, requested, nil},
		"a try is over soon":         {ballot.Try, votes{granted(1)}, requested, nil},
		"a join stands on its hold":  {ballot.Join, votes{granted(1)}, requested, nil},
		"asked for before the grant": {ballot.Wait, nil, early, []ballot.Action{yield(A, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := asked(test.entry, 3, test.votes...)
			if test.then != nil {
				test.then(b)
			}
			b.Decide(now, anywhere)
			require.Equal(t, test.want, b.Next(nil))
			require.Empty(t, b.Next(nil), "once")
		})
	}
}

// A waiter that has left a master asks there again once a quorum answers, and counts a later grant only.
func TestAWaiterThatLeftAMasterComesBackWithAQuorum(t *testing.T) {
	b := asked(ballot.Wait, 3, granted(5), down, down)
	require.Equal(t, []ballot.Action{leave(A, 5)}, b.Next(nil))
	require.Empty(t, b.Next(nil), "once")
	b.Vote(A).Granted(5, now.Add(trust)) // the message of what it gives back
	b.Vote(A).Yielded(5, absent)
	require.Equal(t, ballot.Left, b.Vote(A).State)
	require.False(t, b.Vote(A).MayBeHeld())
	require.Empty(t, b.Next(nil))
	b.Vote(B).Ask()
	require.Empty(t, b.Next(nil), "one is asked again, and may not answer")
	b.Vote(B).Answered(down)
	require.Empty(t, b.Next(nil))
	require.Equal(t, 1, b.Votes().Answers())
	b.Vote(B).Ask()
	b.Vote(B).Answered(queued)
	require.Equal(t, []ballot.Action{{Master: A, Op: ballot.Ask, Token: 5}}, b.Next(nil))
	require.Empty(t, b.Next(nil), "once")
	b.Vote(A).Answered(granted(5))
	b.Vote(B).Granted(5, now.Add(trust))
	require.Equal(t, ballot.Open, verdict(b, now), "the answer to an earlier request")
	b.Vote(A).Granted(7, now.Add(trust))
	b.Vote(B).Granted(7, now.Add(trust))
	require.EqualValues(t, 7, reported(b, now))
}

func TestAnswersToALeave(t *testing.T) {
	for name, test := range map[string]struct {
		answer ballot.Answer
		state  ballot.State
		again  []ballot.Action
	}{
		"unknown there":   {absent, ballot.Left, nil},
		"waits there":     {queued, ballot.Queued, nil},
		"granted since":   {granted(3), ballot.Granted, []ballot.Action{leave(A, 3)}},
		"not answered":    {silent, ballot.Granted, nil}, // until Remind
		"did not run":     {down, ballot.Granted, nil},
		"denied for good": {denied, ballot.Failed, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := asked(ballot.Wait, 3, granted(1), down, down)
			b.Next(nil)
			require.Empty(t, b.Remind(A, nil), "not before its answer")
			b.Vote(A).Yielded(1, test.answer)
			require.Equal(t, test.state, b.Vote(A).State)
			require.False(t, b.Vote(A).Counts() && test.again == nil)
			require.Equal(t, test.again, b.Next(nil))
			if test.answer.Status == ballot.NoAnswer && test.state == ballot.Granted {
				require.Equal(t, []ballot.Action{leave(A, 1)}, b.Remind(A, nil))
			}
		})
	}
}

func late(b *ballot.Ballot) {
	b.Next(nil) // it is still awaited
	b.Vote(C).Late(errSilent)
}

func early(b *ballot.Ballot) {
	b.Vote(A).YieldRequested()
	b.Vote(A).Answered(granted(1))
}

// yielding returns a ballot of split votes, where A's grant of token 1 is being offered back.
func yielding(t *testing.T) *ballot.Ballot {
	b := asked(ballot.Wait, 3, granted(1), queued, queued)
	require.Equal(t, []ballot.Action{yield(A, 1)}, b.Next(nil))
	return b
}

func TestAnswersToAYield(t *testing.T) {
	for name, test := range map[string]struct {
		answer ballot.Answer
		state  ballot.State
		counts bool
	}{
		"kept with a new token":   {granted(3), ballot.Granted, true},
		"kept with the old one":   {granted(1), ballot.Granted, false},
		"back in the queue":       {queued, ballot.Queued, false},
		"unknown there":           {absent, ballot.Unasked, false},
		"not answered":            {silent, ballot.Granted, false},
		"did not run":             {down, ballot.Granted, false},
		"denied: the grant is it": {denied, ballot.Failed, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := yielding(t)
			b.Vote(A).Yielded(1, test.answer)
			v := b.Vote(A)
			require.Equal(t, test.state, v.State)
			require.Equal(t, test.counts, v.Counts())
			require.Equal(t, test.state != ballot.Unasked, v.MayBeHeld())
			require.Equal(t, test.answer.Err, v.Err)
			b.Vote(B).Granted(3, now.Add(trust))
			require.Equal(t, test.counts, reported(b, now) == 3)
		})
	}
}

func TestAYieldWithoutAnAnswerIsSentAgain(t *testing.T) {
	b := yielding(t)
	require.Empty(t, b.Remind(A, nil), "not before its answer")
	b.Vote(A).Yielded(1, silent)
	require.Empty(t, b.Next(nil))
	require.Equal(t, []ballot.Action{yield(A, 1)}, b.Remind(A, nil))
	b.Vote(A).Yielded(1, queued)
	require.Equal(t, ballot.Queued, b.Vote(A).State)
}

func TestTheLargestTokenOfferedBackIsRemembered(t *testing.T) {
	b := asked(ballot.Wait, 3, granted(5), queued, queued)
	b.Next(nil)
	b.Vote(A).Yielded(5, absent)
	b.Vote(A).Ask()
	b.Vote(A).Answered(granted(3)) // a snapshot of A has brought back an older grant
	require.False(t, b.Vote(A).Counts())
	require.Equal(t, []ballot.Action{yield(A, 3)}, b.Remind(A, nil))
	b.Vote(A).Yielded(3, queued)
	b.Vote(B).Granted(5, now.Add(trust))
	b.Vote(A).Granted(5, now.Add(trust)) // the message of the first grant, late
	require.Equal(t, ballot.Open, verdict(b, now))
	require.Equal(t, ballot.Queued, b.Vote(A).State)
}
