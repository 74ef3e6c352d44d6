package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/chaos/measure/internal/server"
	"github.com/seed74116694/fencelock/chaos/peer"
)

func TestMain(m *testing.M) {
	server.ServeDelayed()
	goleak.VerifyTestMain(m)
}

// requireServer skips without the program; where CI=true the test fails instead.
func requireServer(t *testing.T) {
	t.Helper()
	if server.Installed() {
		return
	}
	const missing = "no redis-server on PATH: install the Debian package redis-server"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
}

// One short run on a real server: every peer does its work in a timed, a counted and a contended workload, and what is
// exact is what it must be.
func TestRun(t *testing.T) {
	requireServer(t)
	folder := t.TempDir()
	file := filepath.Join(folder, "out.json")
	var stdout, stderr bytes.Buffer
	args := []string{"-w", "latency,calls,hand-off", "-for", "20ms", "-rounds", "1", "-json", file, "-svg", folder}
	require.NoError(t, run(t.Context(), args, &stdout, &stderr), stderr.String())
	require.Contains(t, stdout.String(), "bounds")
	require.Contains(t, stdout.String(), "redis-server")
	require.FileExists(t, filepath.Join(folder, "fairness.svg"))

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var r Result
	require.NoError(t, json.Unmarshal(text, &r))
	require.Len(t, r.Workloads, 3)
	timed, counted := r.Workloads[0], r.Workloads[1]
	for _, lib := range peer.Select(pairs) {
		require.Positive(t, timed.row(lib.Name, 0).Median[p50], lib.Name)
	}
	for name, want := range map[string]float64{
		peer.FloorSet: 2, peer.FloorLua: 6, peer.RedsyncRueidis: 2, peer.RedsyncGoRedis: 2, peer.Redislock: 3,
		peer.Rueidislock: 4,
	} {
		require.Equal(t, want, counted.row(name, 0).Median[insideWrite], name)
		require.Equal(t, 2.0, counted.row(name, 0).Median["sent, pair"], name)
	}
	require.Positive(t, counted.row(peer.Ours, 0).Median[insideRead])
}

func TestFlagsRefused(t *testing.T) {
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"-w", "nothing"}, `there is no workload "nothing"`},
		{[]string{"-rounds", "0"}, "-rounds 0: must be 1 to 100"},
		{[]string{"-for", "0s"}, "-for 0s: must be positive"},
		{[]string{"-for", "2m"}, "-for 2m0s: must be positive, and 1m0s at most"},
		{[]string{"latency"}, `"latency" is not a flag`},
	} {
		require.ErrorContains(t, run(t.Context(), test.args, &bytes.Buffer{}, &bytes.Buffer{}), test.says)
	}
}

func TestListNamesEveryWorkload(t *testing.T) {
	var stdout bytes.Buffer
	require.NoError(t, run(t.Context(), []string{"-w", "list"}, &stdout, &bytes.Buffer{}))
	for _, w := range workloads() {
		require.Contains(t, stdout.String(), w.Name)
	}
}
