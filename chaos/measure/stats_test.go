package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		all  []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 9}, 3}} {
		before := append([]float64(nil), test.all...)
		require.Equal(t, test.want, median(test.all))
		require.Equal(t, before, test.all, "the order stays")
	}
	require.Zero(t, medianTime(nil))
	require.Equal(t, 2*time.Second, medianTime([]time.Duration{3 * time.Second, time.Second, 2 * time.Second}))
}

func TestJain(t *testing.T) {
	require.Zero(t, jain(nil))
	require.Zero(t, jain([]float64{0, 0}))
	require.InDelta(t, 1, jain([]float64{7, 7, 7, 7}), 1e-9)
	require.InDelta(t, .25, jain([]float64{0, 9, 0, 0}), 1e-9)
	require.InDelta(t, .9, jain([]float64{1, 2}), 1e-9)
}

// Who asked before the lock was released, and did not release it himself, got it by a hand-off.
func TestHandOffsAreCounted(t *testing.T) {
	a := &arena{}
	c := &contender{arena: a, id: 1}
	a.freed.Store(int64(10 * time.Millisecond))
	a.last.Store(2)
	c.take(4*time.Millisecond, 11*time.Millisecond)
	require.Equal(t, 1, c.handOffs)
	require.Equal(t, []time.Duration{time.Millisecond}, c.handed)

	c.take(10*time.Millisecond, 12*time.Millisecond) // nobody has released since it asked
	a.last.Store(1)
	c.take(4*time.Millisecond, 13*time.Millisecond) // its own
	require.Equal(t, 1, c.handOffs)
	require.Equal(t, 3, c.locks)
}
