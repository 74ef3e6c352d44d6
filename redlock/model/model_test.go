package model_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-model")
	goleak.VerifyTestMain(m)
}

// needSpin skips the test where the models cannot be checked, except in CI, where they must be.
func needSpin(t *testing.T) {
	t.Helper()
	testredis.NeedAll(t, "checking the models takes up to a minute")
	for _, tool := range []string{"bash", "spin", "gcc"} {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		const format = "%s is missing, so the models are NOT checked: install the Debian packages spin and gcc"
		if os.Getenv("CI") == "true" {
			t.Fatalf(format, tool)
		}
		t.Skipf(format, tool)
	}
}

// run runs run.sh with args and returns what it printed and its exit code.
func run(ctx context.Context, t *testing.T, env []string, args ...string) (string, int) {
	t.Helper()
	bash, err := exec.LookPath("bash")
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, bash, append([]string{"run.sh"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // run.sh ends spin's processes
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	require.NoError(t, ctx.Err(), "run.sh %s was stopped:\n%s", strings.Join(args, " "), &out)
	if err != nil {
		require.IsType(t, &exec.ExitError{}, err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func TestSmallCases(t *testing.T) {
	needSpin(t)

	out, code := run(t.Context(), t, nil)
	t.Log("\n" + out)
	require.Zero(t, code)

	// Whatever the table expects, these must stay in it, and stay refuted.
	for _, shortcut := range []string{
		"no-raise", "raise-unheld", "count-above", "check-first", "read-equal", "no-abstention", "unchecked-run",
		"renew-lapsed", "hear-abstaining", "regain-abstaining", "regain-unconfirmed", "regain-offered", "regain-busy",
		"no-tombstone", "lowers-gone", "keeps-cut-off", "leave-counted",
		"floor-no-end", "floor-no-bound", "yield-counted", "passed-forgotten", "passed-again",
		"block-unminted", "block-assumed", "upgrade-unheld",
		"adopt-untaken", "adopt-had-any", "adopt-ghost", "adopt-break-untold", "adopt-unmarked", "adopt-any-mark",
		"break-frees", "break-renewable",
		"break-mark-expires", "minimum-ttl", "minimum-cut", "minimum-renewed", "founded-false-word",
	} {
		require.Regexp(t, `(?m)^ok +`+shortcut+` +refuted `, out)
	}
	for _, rule := range []string{
		"writes", "readers", "rolled-back", "regain-wiped", "floor", "queue", "passed", "lowers", "leaves", "leaves-cut-off",
		"adopt", "adopt-two", "adopt-broken", "adopt-forged", "adopt-forged-lost", "break", "minimum",
		"founded-by-word",
	} {
		require.Regexp(t, `(?m)^ok +`+rule+` +holds `, out)
	}
}

func TestUnexpectedOutcomeFails(t *testing.T) {
	needSpin(t)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(".")))
	table := "small|check-first|token.pml|-DCHECK_FIRST|shortest|holds|a shortcut that is not sound\n" +
		"small|writes|token.pml||all|holds|as it is\n" +
		"small|typo|token.pml|-DHOLDS=x|all|holds|does not compile\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cases.txt"), []byte(table), 0o600))
	t.Chdir(dir)

	out, code := run(t.Context(), t, nil)
	require.Equal(t, 1, code, out)
	require.Regexp(t, `FAIL check-first +refuted order`, out)
	require.Contains(t, out, "W1 reports tokens 1 to 1", "the counterexample is shown")
	require.Regexp(t, `FAIL typo +does not run`, out)
	require.Contains(t, out, "1 of 3 cases as expected")
}

func TestRefusals(t *testing.T) {
	needSpin(t)
	out, code := run(t.Context(), t, nil, "no-such-case")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "no such case among: no-such-case")

	out, code = run(t.Context(), t, []string{"PATH=" + t.TempDir()})
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "spin is missing: install the Debian packages spin and gcc")
}
