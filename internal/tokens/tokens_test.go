package tokens_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/tokens"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at makes the Floor of masters whose clocks show these times, 0 for a clock that is not known. The masters in failing
// do not answer. This process's own clock shows 20 s.
func at(clocks []time.Duration, failing ...int) *tokens.Floor {
	stands := func() (time.Duration, time.Time) { return 0, time.Unix(20, 0) }
	return tokens.New(stands, len(clocks), func(master int, _ clock.Instant) (int64, bool, bool) {
		fails := false
		for _, i := range failing {
			fails = fails || i == master
		}
		return clocks[master].Microseconds(), clocks[master] != 0, fails
	})
}

const (
	ms = time.Millisecond
	s  = time.Second
)

// A proposal is beyond the clocks that a quorum can follow.
func TestProposal(t *testing.T) {
	type clocks = []time.Duration
	for name, test := range map[string]struct {
		clocks  clocks
		failing []int
		is      time.Duration
	}{
		"a single master uses its own":  {clocks{10 * s}, nil, 0},
		"equal clocks":                  {clocks{10 * s, 10 * s, 10 * s}, nil, 10050 * ms},
		"a third one that can follow":   {clocks{10 * s, 10100 * ms, 10200 * ms}, nil, 10250 * ms},
		"one is far ahead":              {clocks{10 * s, 14 * s, 10100 * ms}, nil, 10150 * ms},
		"one is far behind":             {clocks{10 * s, 1 * s, 10100 * ms}, nil, 10150 * ms},
		"all are far apart":             {clocks{10 * s, 14 * s, 17 * s}, nil, 14*s + 800*ms},
		"one that fails does not count": {clocks{10 * s, 10 * s, 10200 * ms}, []int{2}, 10050 * ms},
		"without a quorum it counts":    {clocks{10 * s, 10 * s, 10200 * ms}, []int{1, 2}, 10250 * ms},
		"none is known: the process's":  {clocks{0, 0, 0}, nil, 20050 * ms},
	} {
		require.Equal(t, test.is.Microseconds(), at(test.clocks, test.failing...).Proposal(), name)
	}
}

// A proposal is beyond each token that was observed, as far as the masters permit, and always beyond the lock's own.
func TestProposalAfterTokens(t *testing.T) {
	f := at([]time.Duration{10 * s, 10 * s, 10 * s})
	f.Observe(10_300_000)
	f.Observe(10_200_000)
	require.EqualValues(t, 10_300_001, f.Proposal())
	require.EqualValues(t, 10_500_001, f.ProposalAfter(10_500_000))
	f.Observe(15_000_000)
	require.EqualValues(t, 10_800_000, f.Proposal())
	require.EqualValues(t, 15_000_001, f.ProposalAfter(15_000_000))
	require.Zero(t, at([]time.Duration{10 * s}).ProposalAfter(15_000_000))
}

// A block ends before the masters would cut it off, and has a few tokens all the same.
func TestBudget(t *testing.T) {
	f := at([]time.Duration{10 * s, 10 * s, 10 * s})
	require.Equal(t, 1000, f.Budget(1000, 0))
	require.Equal(t, 750_000, f.Budget(1_000_000, 0))
	require.Equal(t, 16, f.Budget(1000, 10_800_000))
	require.Zero(t, f.Budget(0, 0))
	require.Equal(t, 1_000_000, at([]time.Duration{10 * s}).Budget(1_000_000, 0))
}

func TestReach(t *testing.T) {
	f := at([]time.Duration{10 * s, 0, 10 * s})
	require.Equal(t, fencing.Token(11_000_000), f.Reach(0))
	require.Equal(t, fencing.MaxToken, f.Reach(1))
}

// Over slow links a proposal is further ahead. One slow answer counts for a while.
func TestRoundTrip(t *testing.T) {
	f := at([]time.Duration{10 * s, 10 * s, 10 * s})
	f.Answered(200 * ms)
	require.EqualValues(t, 10_250_000, f.Proposal())
	f.Answered(0)
	require.Equal(t, 175*ms, f.RoundTrip())
	f.Answered(time.Minute)
	require.Equal(t, 500*ms, f.RoundTrip())
}

// Ids follow the clock in the middle, and a difference that the estimate cannot show changes nothing.
func TestAhead(t *testing.T) {
	clocks := []time.Duration{10 * s, 80 * s, 81 * s}
	f := at(clocks)
	require.Equal(t, 60*s, f.Ahead())
	clocks[1] += 50 * ms
	require.Equal(t, 60*s, f.Ahead())
	clocks[1] += ms
	require.Equal(t, 60*s+51*ms, f.Ahead())
	require.Equal(t, -10*s, at([]time.Duration{10 * s, 80 * s, 0}).Ahead(), "of two the one that is behind")
	clocks[0], clocks[1] = 0, 0
	require.Equal(t, 60*s+51*ms, f.Ahead(), "no quorum is known")
}
