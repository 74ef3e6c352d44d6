package ballot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
)

// counterexamples are the runs that refute a shortcut in redlock/model, as far as the client takes part in them: each
// ends where the rule saves it.
var counterexamples = map[string]func(*testing.T){
	"both-report": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(7), granted(7))
		require.EqualValues(t, 7, reported(b, now))
	},
	"no-raise": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(1), granted(2))
		require.Equal(t, ballot.Open, verdict(b, now), "the largest answer of one quorum says nothing about the next")
		require.Equal(t, []ballot.Action{raise(A, 2)}, b.Next(nil))
		b.Vote(A).Raised(2, granted(2))
		require.EqualValues(t, 2, reported(b, now))
	},
	"raise-unheld": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(1), granted(2), refused)
		b.Decide(now, anywhere)
		b.Next(nil)
		b.Vote(A).Raised(2, refused) // the grant is gone
		require.Equal(t, ballot.TooLate, verdict(b, now))
	},
	"count-above": func(t *testing.T) {
		b := asked(ballot.Wait, 5, granted(1), granted(2), granted(2))
		require.Equal(t, ballot.Open, verdict(b, now))
		b.Vote(3).Answered(granted(3))
		require.Equal(t, ballot.Open, verdict(b, now), "a master that has gone past the target does not count")
		b.Vote(4).Answered(granted(2))
		require.EqualValues(t, 2, reported(b, now))
	},
	"check-first": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(1), granted(2))
		require.Equal(t, ballot.Open, verdict(b, now))
		b.Next(nil)
		b.Vote(A).Raised(2, grantedUntil(2, tooLate.Add(trust)))
		require.Equal(t, ballot.TooLate, verdict(b, tooLate), "the trust in B ended during the raise")
	},
	"decide-twice": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(1), granted(2))
		b.Decide(now, anywhere)
		require.Equal(t, []ballot.Action{raise(A, 2)}, b.Next(nil))
		b.Vote(C).Answered(granted(3))
		require.Equal(t, ballot.Open, verdict(b, now))
		require.Empty(t, b.Next(nil), "nothing is raised to a later answer")
		b.Vote(A).Raised(2, granted(2))
		require.EqualValues(t, 2, reported(b, now))
	},
	"block-assumed": func(t *testing.T) {
		b := asked(ballot.Wait, 3)
		for master, first := range []fencing.Token{11, 19} { // the second has granted less
			b.Vote(master).Answered(granted(20))
			b.Vote(master).Block(20, first)
		}
		require.EqualValues(t, 20, reported(b, now))
		require.EqualValues(t, 19, b.Votes().First(20))

		b = asked(ballot.Wait, 3, granted(20), granted(20))
		b.Vote(A).Block(20, 11)
		require.EqualValues(t, 20, reported(b, now))
		require.EqualValues(t, 20, b.Votes().First(20), "the second does not say where its block began")

		b = asked(ballot.Wait, 3, granted(20), granted(30))
		b.Vote(A).Block(20, 11)
		b.Vote(B).Block(30, 21)
		b.Decide(now, anywhere)
		b.Next(nil)
		b.Vote(A).Raised(30, granted(30))
		require.EqualValues(t, 30, reported(b, now))
		require.EqualValues(t, 21, b.Votes().First(30), "one that was raised has counted less than what it was raised from")
		b.Vote(A).Block(20, 5)
		b.Vote(A).Block(30, 31)
		b.Vote(A).Block(30, 0)
		require.EqualValues(t, 21, b.Votes().First(30), "what says nothing of this grant")
	},
	"renew-lapsed": func(t *testing.T) {
		b := asked(ballot.Wait, 3, grantedUntil(2, later), granted(2), granted(2))
		b.Decide(now, anywhere)
		require.True(t, b.Vote(A).Renewing(2))
		b.Vote(A).Renewed(2, grantedUntil(2, tooLate.Add(trust)), later) // its snapshot brought the grant back
		require.Equal(t, 2, b.Votes().Standing(2), "the grant had run out in between")
	},
	"regain-abstaining": func(t *testing.T) {
		b := holding(queued)
		trusted, ok := b.Vote(C).Regaining(2, now)
		require.True(t, ok)
		require.False(t, trusted, "it never had a grant there, so it says nothing of who had one")
	},
	"regain-offered": func(t *testing.T) {
		_, ok := offeredBackAndHeld().Vote(C).Regaining(2, now)
		require.False(t, ok)
	},
	"no-tombstone": func(t *testing.T) {
		b := holding(refused)
		require.False(t, b.Vote(C).Unanswered())
		b.Vote(C).Regaining(2, now)
		require.True(t, b.Vote(C).MayBeHeld())
		require.True(t, b.Vote(C).Unanswered(), "the regain may come after the release")
	},
	"no-yield": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(1), queued, queued)
		require.Equal(t, []ballot.Action{yield(A, 1)}, b.Next(nil))
	},
	"overtake": func(t *testing.T) {
		b := asked(ballot.Wait, 3, silent, down)
		require.True(t, b.Vote(A).MayBeHeld() && b.Vote(A).Unanswered(), "it may have run, or run yet")
		require.False(t, b.Vote(B).MayBeHeld())
		require.True(t, b.Vote(C).MayBeHeld() && b.Vote(C).Unanswered(), "it is on its way")
	},
	"yield-counted": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(1), queued, queued)
		b.Next(nil)
		b.Vote(B).Granted(1, now.Add(trust))
		require.Equal(t, ballot.Open, verdict(b, now), "before the answer the grant may be gone")
		b.Vote(A).Yielded(1, silent)
		require.Equal(t, ballot.Open, verdict(b, now), "and without an answer")
	},
	"keeps-cut-off": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(1), down, down)
		require.Equal(t, []ballot.Action{leave(A, 1)}, b.Next(nil))
	},
	"leave-counted": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(1), down, down)
		b.Next(nil)
		b.Vote(A).Yielded(1, silent)
		b.Vote(B).Ask()
		b.Vote(B).Answered(granted(1))
		require.Equal(t, ballot.Open, verdict(b, now), "the grant may be gone")
	},
	"leave-unnamed": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(1), down, down)
		require.Equal(t, []ballot.Action{leave(A, 1)}, b.Next(nil), "it names the grant that it gives back")
		b.Vote(A).Granted(3, now.Add(trust))
		b.Vote(A).Yielded(1, granted(3))
		b.Vote(B).Granted(3, now.Add(trust))
		require.EqualValues(t, 3, reported(b, now), "the answer is not about the later grant")
	},
	"yield-unnamed": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(1), queued, queued)
		require.Equal(t, []ballot.Action{yield(A, 1)}, b.Next(nil), "a yield names the grant that it gives up")
		b.Vote(A).Granted(3, now.Add(trust)) // handed off, before the yield is answered
		b.Vote(A).Yielded(1, queued)
		b.Vote(B).Granted(3, now.Add(trust))
		require.EqualValues(t, 3, reported(b, now), "the answer to the yield of the old grant is not about the new one")
	},
	"yield-kept": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(1), queued, queued)
		b.Next(nil)
		b.Vote(A).Yielded(1, granted(1))
		b.Vote(B).Granted(1, now.Add(trust))
		require.Equal(t, ballot.Open, verdict(b, now), "the second copy of the yield may find an older hold")
		require.Equal(t, []ballot.Action{yield(A, 1)}, b.Remind(A, nil))
	},
	"old-answers": func(t *testing.T) {
		b := asked(ballot.Wait, 3, granted(5), queued, queued)
		b.Next(nil)
		b.Vote(A).Yielded(5, queued)
		b.Vote(B).Granted(5, now.Add(trust))
		b.Vote(A).Granted(5, now.Add(trust)) // the message of what was given up
		require.Equal(t, ballot.Open, verdict(b, now))
		require.Equal(t, ballot.Queued, b.Vote(A).State)
	},
}

func TestCounterexamplesOfTheModel(t *testing.T) {
	for name, run := range counterexamples {
		t.Run(name, run)
	}
}
