package sqltest_test

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// aborting is set in the environment of a run that is to be killed.
const aborting = "SQLTEST_ABORTING"

// A run that is killed cannot clean up, and nothing of it is left all the same: no file, and no server.
func TestAbortedRunLeavesNothing(t *testing.T) {
	t.Parallel()
	temporary, err := os.MkdirTemp("", "aborted") // not t.TempDir, which other users cannot enter
	require.NoError(t, err)
	defer func() { require.NoError(t, os.Remove(temporary), "it is empty") }()
	require.NoError(t, os.Chmod(temporary, 0o755))

	run := exec.Command(os.Args[0], "-test.run=^TestToBeAborted$")
	run.Env = append(os.Environ(), "TMPDIR="+temporary, aborting+"=1")
	output, err := run.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, run.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err, "it ended before it was ready")
	require.Equal(t, "ready\n", line)
	inUse, err := os.ReadDir(temporary)
	require.NoError(t, err)
	require.NotEmpty(t, inUse)

	require.NoError(t, run.Process.Kill())
	require.Error(t, run.Wait())
	require.Eventually(t, func() bool {
		left, err := os.ReadDir(temporary)
		return err == nil && len(left) == 0
	}, eventLimit, 20*time.Millisecond)
}

// TestToBeAborted is the run that TestAbortedRunLeavesNothing kills.
func TestToBeAborted(t *testing.T) {
	if os.Getenv(aborting) == "" {
		t.Skip("only as a process of another test")
	}
	var doomed sqltest.Servers
	for _, store := range doomed.Stores() {
		t.Run(store.Name, func(t *testing.T) { makeAccounts(t, store.Open(t), 1) })
	}
	_, err := os.Stdout.WriteString("ready\n")
	require.NoError(t, err)
	select {}
}
