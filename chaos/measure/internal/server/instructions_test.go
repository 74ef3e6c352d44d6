package server_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/chaos/measure/internal/server"
)

// requireCounted skips without the programs; where CI=true it fails instead.
func requireCounted(t *testing.T) {
	t.Helper()
	if server.Installed() && server.CountsInstructions() {
		return
	}
	const missing = "redis-server or valgrind is not on PATH: install the Debian packages of these names"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// What is counted is what was asked for since the last call: more for more commands, and next to nothing for none.
func TestInstructions(t *testing.T) {
	requireCounted(t)
	s, err := server.StartCounted(t.Context(), server.Default)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	count := func(flushes int) int64 {
		_, err := s.Instructions(t.Context())
		require.NoError(t, err)
		for range flushes {
			require.NoError(t, s.Flush(t.Context()))
		}
		n, err := s.Instructions(t.Context())
		require.NoError(t, err)
		return n
	}
	count(1) // the first one allocates
	few, many := count(20), count(200)
	require.Positive(t, few)
	require.Greater(t, many, 3*few)
}
