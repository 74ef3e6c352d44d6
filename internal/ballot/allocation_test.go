package ballot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/ballot"
)

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
