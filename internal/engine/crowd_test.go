package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/engine"
)

// So many ask. Each of the others asks when one that has asked has ended; those that end before are left out.
func TestACrowdAsksInItsOrder(t *testing.T) {
	const near, far = 100, 5
	c := engine.NewCrowd()
	var leave []func() int
	for i := range near + far {
		end, asks := c.Join()
		require.Equal(t, i < near, asks, i)
		leave = append(leave, end)
	}
	require.Equal(t, -1, leave[near+1](), "it has not asked")
	for _, step := range [][2]int{{7, near}, {near, near + 2}, {3, near + 3}, {near + 3, near + 4}, {0, -1}} {
		require.Equal(t, step[1], leave[step[0]]())
	}
	require.Equal(t, 1, c.Locks())
	end, asks := c.Join()
	require.True(t, asks, "one place is free")
	leave = append(leave, end)
	ended := map[int]bool{near + 1: true, 7: true, near: true, 3: true, near + 3: true, 0: true}
	for i, end := range leave {
		if !ended[i] {
			require.Equal(t, -1, end())
		}
	}
	require.Zero(t, c.Locks())
}
