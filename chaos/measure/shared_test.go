package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every form does its work in the workloads of shared holds, and no client is left out.
func TestSharedHolds(t *testing.T) {
	requireServer(t)
	file := filepath.Join(t.TempDir(), "out.json")
	var stdout, stderr bytes.Buffer
	args := []string{"-w", "relock,shared,read-storm,read-mostly,read-many", "-for", "50ms", "-rounds", "1", "-json", file}
	require.NoError(t, run(t.Context(), args, &stdout, &stderr), stderr.String())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var r Result
	require.NoError(t, json.Unmarshal(text, &r))
	require.Len(t, r.Workloads, 5)
	for _, w := range r.Workloads {
		for _, row := range w.Rows {
			require.NotEmpty(t, row.Median, "%s: %s", w.Name, row.Peer)
		}
	}
}
