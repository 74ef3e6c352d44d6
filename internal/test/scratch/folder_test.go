//go:build unix

package scratch_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scratch"
)

// aborting is set in the environment of a run that is to be ended from outside.
const aborting = "SCRATCH_ABORTING"

func TestMain(m *testing.M) {
	if os.Getenv(aborting) != "" {
		scratch.Use("aborted")
	}
	goleak.VerifyTestMain(m)
}

func TestAnAbortedRunLeavesNothing(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			temporary := t.TempDir()
			run := exec.Command(os.Args[0], "-test.run=^TestToBeAborted$")
			run.Env = append(os.Environ(), "TMPDIR="+temporary, aborting+"=1")
			output := expect.NoError(run.StdoutPipe()).In(t)
			require.NoError(t, run.Start())
			line := expect.NoError(bufio.NewReader(output).ReadString('\n')).In(t, "it ended before it was ready")
			require.Equal(t, "ready\n", line)
			require.NotEmpty(t, entries(t, temporary))

			require.NoError(t, run.Process.Signal(signal))
			require.Error(t, run.Wait())
			require.Eventually(t, func() bool { return len(entries(t, temporary)) == 0 },
				time.Minute, 10*time.Millisecond)
		})
	}
}

// TestToBeAborted is the run that TestAnAbortedRunLeavesNothing ends.
func TestToBeAborted(t *testing.T) {
	if os.Getenv(aborting) == "" {
		t.Skip("only as a process of another test")
	}
	require.NoError(t, os.WriteFile(filepath.Join(t.TempDir(), "file"), []byte("text"), 0o600))
	runtime.GC() // it must not take the folder away
	expect.NoError(os.Stdout.WriteString("ready\n")).In(t)
	select {}
}

func TestClose(t *testing.T) {
	f := expect.NoError(scratch.New("closed")).In(t)
	require.NoError(t, os.WriteFile(filepath.Join(f.Path(), "file"), nil, 0o600))
	require.NoError(t, f.Close())
	require.NoFileExists(t, f.Path())
}

func entries(t *testing.T, folder string) []os.DirEntry {
	t.Helper()
	return expect.NoError(os.ReadDir(folder)).In(t)
}
