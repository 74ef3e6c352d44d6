package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistogramOfNothing(t *testing.T) {
	var h histogram
	require.Zero(t, h.percentile(50))
	require.Zero(t, h.max)
}

func TestHistogramIsExactForSmallValues(t *testing.T) {
	var h histogram
	for d := time.Duration(1); d <= 50; d++ {
		h.add(d)
	}
	for p, want := range map[float64]time.Duration{0: 1, 2: 1, 2.1: 2, 50: 25, 98: 49, 99: 50, 100: 50} {
		require.Equal(t, want, h.percentile(p), "p%v", p)
	}
}

func TestBucketsFollowEachOther(t *testing.T) {
	require.Equal(t, buckets-1, bucket(math.MaxInt64))
	for i := range buckets - 1 {
		require.Equal(t, i, bucket(ceiling(i)))
		require.Equal(t, i+1, bucket(ceiling(i)+1))
	}
	require.Equal(t, 0, bucket(-time.Second))
}

func TestPercentilesOfManyValues(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var whole, half, other histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(math.Exp(rng.Float64() * 30)) // up to three hours
		all = append(all, d)
		whole.add(d)
		[]*histogram{&half, &other}[i%2].add(d)
	}
	slices.Sort(all)
	half.merge(&other)
	require.Equal(t, whole, half)
	require.Equal(t, all[len(all)-1], whole.max)
	for _, p := range []float64{1, 25, 50, 90, 99, 99.9, 100} {
		exact := all[int(math.Ceil(p/100*float64(len(all))))-1]
		got := whole.percentile(p)
		require.GreaterOrEqual(t, got, exact, "p%v", p)
		require.LessOrEqual(t, float64(got), float64(exact)*(1+1./32)+1, "p%v", p)
	}
}
