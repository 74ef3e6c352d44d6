package fencing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

func TestRegistersCheck(t *testing.T) {
	seen := fencing.Registers{MaxRead: 20, MaxWrite: 10}
	for name, tt := range map[string]struct {
		fence          fencing.Fence
		check, derived fencing.Token // the register that refuses; zero where it passes
	}{
		"read before the newest write": {read("a", 9), 10, 10},
		"read at the newest write":     {read("a", 10), 0, 0},
		"read beside newer readers":    {read("a", 15), 0, 0},
		"write before both":            {write("a", 9), 20, 10},
		"write before the newest read": {write("a", 19), 20, 0},
		"write at the newest read":     {write("a", 20), 0, 0},
		"write after both":             {write("a", 21), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			requireVerdict(t, tt.fence, tt.check, seen.Check(tt.fence))
			requireVerdict(t, tt.fence, tt.derived, seen.CheckDerived(tt.fence))
		})
	}
	require.ErrorIs(t, seen.Check(read("a", 0)), fencing.ErrMissing)
	require.ErrorIs(t, seen.CheckDerived(read("", 30)), fencing.ErrMalformed)
}

func requireVerdict(t *testing.T, f fencing.Fence, refusedBy fencing.Token, err error) {
	t.Helper()
	if refusedBy == 0 {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, fencing.ErrStale)
	require.Equal(t, &fencing.StaleError{Resource: f.Resource, Got: f.Token, Seen: refusedBy}, err)
}

func TestRegistersRaise(t *testing.T) {
	var none fencing.Registers
	require.Equal(t, fencing.Registers{MaxRead: 5}, none.Raise(read("a", 5)))
	require.Equal(t, fencing.Registers{MaxWrite: 5}, none.Raise(write("a", 5)))

	seen := fencing.Registers{MaxRead: 20, MaxWrite: 10}
	require.Equal(t, seen, seen.Raise(read("a", 15)), "a register never goes back")
	require.Equal(t, fencing.Registers{MaxRead: 20, MaxWrite: 25}, seen.Raise(write("a", 25)))
}
