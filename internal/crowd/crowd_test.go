package crowd_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/crowd"
)

// So many ask. Each of the others asks when one that has asked has ended; those that end before are left out.
func TestACrowdAsksInItsOrder(t *testing.T) {
	const far = 5
	var c crowd.Crowds[int]
	var seats []*crowd.Seat[int]
	for i := range crowd.Near + far {
		seat, asks := c.Take("n", i)
		require.Equal(t, i < crowd.Near, asks, i)
		seats = append(seats, seat)
	}
	nobody := func(i int) {
		_, is := c.Leave(seats[i])
		require.False(t, is, i)
		seats[i] = nil
	}
	const near = crowd.Near
	nobody(near + 1) // it has not asked
	for _, step := range [][2]int{{7, near}, {near, near + 2}, {3, near + 3}, {near + 3, near + 4}} {
		next, is := c.Leave(seats[step[0]])
		require.True(t, is)
		require.Equal(t, step[1], next)
		seats[step[0]] = nil
	}
	nobody(0)
	require.Equal(t, 1, c.Len())
	seat, asks := c.Take("n", len(seats))
	require.True(t, asks, "one place is free")
	seats = append(seats, seat)
	for i := range seats {
		if seats[i] != nil {
			nobody(i)
		}
	}
	require.Zero(t, c.Len())
}
