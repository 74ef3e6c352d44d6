package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/engine"
)

// All far waiters are reported once for any number of calls, in their order, without the waiters that have left or have
// come near, and again after the next call.
func TestAllFarWaitersAreReported(t *testing.T) {
	const near, far = 200, 300
	numbers := func(from, to int) (all []int) {
		for i := from; i < to; i++ {
			all = append(all, i)
		}
		return all
	}
	take := func(c *engine.Crowd) (all []int) {
		for part := c.TakeUnreported(); len(part) > 0; part = c.TakeUnreported() {
			require.LessOrEqual(t, len(part), near)
			all = append(all, part...)
		}
		return all
	}
	c := engine.NewCrowd(near + far)
	require.Equal(t, numbers(near, near+far), take(c), "each is reported when it comes")
	require.Empty(t, take(c))
	for range 2 {
		c.ReportAll()
		c.ReportAll()
		require.Equal(t, numbers(near, near+far), take(c))
	}

	c.ReportAll()
	require.Equal(t, numbers(near, 2*near), c.TakeUnreported())
	c.ReportAll() // those that are reported already, behind those that are not
	require.Equal(t, append(numbers(2*near, near+far), numbers(near, 2*near)...), take(c))

	c.ReportAll()
	for i := range near / 2 {
		c.Remove(i)
	}
	c.Remove(near + far - 1)
	c.Advance()
	require.Equal(t, numbers(near+near/2, near+far-1), take(c))
	c.ReportAll()
	require.Equal(t, numbers(near+near/2, near+far-1), take(c))
}
