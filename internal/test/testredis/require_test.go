//go:build unix

package testredis_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// verdict records how a test would have ended.
type verdict struct {
	testing.TB
	skipped, failed string
}

func (v *verdict) Helper()           {}
func (v *verdict) Skip(args ...any)  { v.skipped = fmt.Sprint(args...) }
func (v *verdict) Fatal(args ...any) { v.failed = fmt.Sprint(args...) }

func (v *verdict) Fatalf(format string, args ...any) {
	v.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestRequireWithoutAServer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("FENCELOCK_SERVER", "")
	t.Setenv("FENCELOCK_VALKEY", "none")
	require.Empty(t, testredis.Binaries())

	t.Setenv("CI", "")
	local := &verdict{TB: t}
	testredis.Require(local)
	require.Contains(t, local.skipped, "install the Debian package redis-server")
	require.Empty(t, local.failed)

	t.Setenv("CI", "true")
	ci := &verdict{TB: t}
	testredis.Require(ci)
	require.Contains(t, ci.failed, "install the Debian package redis-server")
	require.Empty(t, ci.skipped)
}

func TestNamedBinaryComesFirst(t *testing.T) {
	t.Setenv("FENCELOCK_SERVER", "")
	t.Setenv("FENCELOCK_TESTS", "all")
	testredis.Require(t)
	installed := testredis.Binaries()
	named := t.TempDir() + "/my-server"
	require.NoError(t, os.Symlink(installed[0], named))
	t.Setenv("FENCELOCK_SERVER", named)
	require.Equal(t, named, testredis.Binaries()[0])
	require.Contains(t, testredis.Binaries(), installed[0])
	t.Setenv("FENCELOCK_TESTS", "")
	require.Equal(t, []string{named}, testredis.Binaries(), "a plain run takes one kind")
}

// TestServerDiesWithTheTestBinary kills a second copy of this binary, which gives its server no
// chance to be ended by a cleanup.
func TestServerDiesWithTheTestBinary(t *testing.T) {
	const role = "TESTREDIS_CHILD"
	if os.Getenv(role) != "" {
		srv := testredis.Start(t)
		fmt.Println(srv.Addr())
		select {}
	}
	testredis.Require(t)
	if runtime.GOOS != "linux" {
		t.Skip("this system has no signal for a dead parent")
	}
	child := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithTheTestBinary$")
	child.Env = append(os.Environ(), role+"=1")
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	addr := lines.Text()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	require.NoError(t, child.Process.Kill())

	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server is still there")
	require.NoError(t, conn.Close())
	require.Error(t, child.Wait())
}
