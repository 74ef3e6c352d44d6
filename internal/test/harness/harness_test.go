package harness_test

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What was set up is taken down in reverse order, also after a fatal failure, and every failure is told.
func TestRun(t *testing.T) {
	var done []string
	var dir string
	failure := errors.New("of the run")
	err := harness.Run(t.Context(), func(tb testing.TB) error {
		dir = tb.TempDir()
		tb.Cleanup(func() { done = append(done, "first") })
		tb.Cleanup(func() {
			done = append(done, "second")
			tb.Fatal("at the end")
		})
		require.DirExists(t, dir)
		return failure
	})
	require.ErrorIs(t, err, failure)
	require.ErrorContains(t, err, "at the end")
	require.Equal(t, []string{"second", "first"}, done)
	require.NoDirExists(t, dir)

	went := false
	err = harness.Run(t.Context(), func(tb testing.TB) error {
		tb.Errorf("%d", 1)
		tb.Fatalf("%d", 2)
		went = true
		return os.ErrInvalid
	})
	require.EqualError(t, err, "1\n2")
	require.False(t, went, "Fatal ends it")
}
