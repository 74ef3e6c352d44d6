package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFindsWhatFailsOneTimeInTen(t *testing.T) {
	var out bytes.Buffer
	failed, err := run(t.Context(), options{
		folder: ".", packages: []string{"./testdata/shaky"}, short: 200, busy: 1, seed: 1, out: &out,
	})
	require.NoError(t, err)
	require.Equal(t, 1, failed, "%s", &out)
	require.Regexp(t, `(?m)^=== \S+/shaky TestFailsOneTimeInTen failed, .*$`, out.String())
	require.Contains(t, out.String(), "one in ten")
	require.Contains(t, out.String(), "402 runs of 2 tests")
	require.Regexp(t, `(?m)^[0-9a-f]{12} \S+/shaky: at least 201 runs of 2 tests, 0 of 0 longer ones$`, out.String())
	require.Regexp(t, `(?m)^\S+/shaky TestFailsOneTimeInTen: failed in \d+ of 201$`, out.String())
}
