package releases_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/releases"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A call waits for the releases that were registered before it, in whatever order they are answered, and for no others.
func TestACallFollowsTheReleasesBeforeIt(t *testing.T) {
	var leaving releases.Leaving
	var called []string
	follow := func(name string) { leaving.After("n", func() { called = append(called, name) }) }
	follow("none")
	require.Equal(t, []string{"none"}, called)

	first, second, other := leaving.Add("n"), leaving.Add("n"), leaving.Add("m")
	follow("two")
	third := leaving.Add("n")
	follow("three")
	require.True(t, leaving.Any("n"))
	second()
	require.Equal(t, []string{"none"}, called)
	first()
	require.Equal(t, []string{"none", "two"}, called)
	third()
	require.Equal(t, []string{"none", "two", "three"}, called)
	require.False(t, leaving.Any("n"))
	require.True(t, leaving.Any("m"))
	other()
	require.False(t, leaving.Any("m"))
}

// While a server hangs, memory is proportional to the single attempts that were given up.
func TestManyCallsBehindManyReleases(t *testing.T) {
	const n = 2_000
	var leaving releases.Leaving
	var before, after runtime.MemStats
	var left []func()
	called := 0
	runtime.ReadMemStats(&before)
	for range n {
		left = append(left, leaving.Add("n"))
		leaving.After("n", func() { called++ })
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(n*1_000))
	for i, f := range left {
		f()
		require.Equal(t, i+1, called)
	}
}
