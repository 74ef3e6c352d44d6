package crowd_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/crowd"
)

// A lock is contended while one waits for it, and for a while after that or after a refusal.
func TestALockIsContendedForAWhile(t *testing.T) {
	var c crowd.Contentions
	require.False(t, c.Lately("n", 0))
	c.Add("n", +1, time.Second)
	c.Add("n", +1, 2*time.Second)
	c.Add("n", -1, 3*time.Second)
	require.True(t, c.Lately("n", time.Hour), "one waits")
	require.False(t, c.Lately("m", time.Hour))
	c.Add("n", -1, time.Hour)
	require.True(t, c.Lately("n", time.Hour+9*time.Second))
	require.False(t, c.Lately("n", time.Hour+11*time.Second))
	require.Zero(t, c.Len())
	c.Add("n", 0, time.Hour)
	require.True(t, c.Lately("n", time.Hour+9*time.Second))
}

// What was contended once is forgotten with other locks that are.
func TestLocksThatWereContendedAreForgotten(t *testing.T) {
	var c crowd.Contentions
	c.Add("stays", +1, 0)
	for i := range 10_000 {
		c.Add(strconv.Itoa(i), 0, time.Duration(i)*time.Second)
		require.LessOrEqual(t, c.Len(), 64)
	}
	require.True(t, c.Lately("stays", time.Hour))
}
