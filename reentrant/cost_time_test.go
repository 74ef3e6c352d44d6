//go:build !race

package reentrant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The best of many short runs tells what it costs, however busy the machine is.
func TestNestingTakesLessThanAMicrosecond(t *testing.T) {
	const run = 200
	l, ctx := nestedIn(t, "a")
	best := time.Hour
	for range 100 {
		begun := time.Now()
		for range run {
			lockAndRelease(t, l, ctx, "a")
		}
		best = min(best, time.Since(begun)/run)
	}
	t.Log(best)
	require.Less(t, best, time.Microsecond)
}
