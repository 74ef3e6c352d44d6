//go:build unix

package testredis

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed testdata/clock_shim.c
var clockShim []byte

// Skewed is a real server whose wall clock the test sets while it runs. Its monotonic clock, and so its speed, stay the
// machine's.
type Skewed struct {
	*Server
	shift string // the file with the shift, in microseconds
}

// StartSkewed starts a server whose clock is initially right. If no C compiler is installed the test skips, and fails
// if CI=true.
func StartSkewed(t testing.TB, args ...string) *Skewed {
	t.Helper()
	Require(t)
	shim := compileShim(t)
	s := &Skewed{shift: filepath.Join(t.TempDir(), "shift")}
	s.Server = newServer(t, Binaries()[0], args...)
	s.env = []string{"LD_PRELOAD=" + shim, "FENCELOCK_CLOCK=" + s.shift}
	s.Skew(0)
	s.begin()
	return s
}

// Skew sets the server's wall clock d ahead of the machine's, or behind it for a negative d. The setting survives
// Restart.
func (s *Skewed) Skew(d time.Duration) {
	s.t.Helper()
	word := binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds()))
	file, err := os.OpenFile(s.shift, os.O_CREATE|os.O_WRONLY, 0o600) // in place: the server has it mapped
	if err != nil {
		s.t.Fatalf("clock of %s: %v", s.Addr(), err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.WriteAt(word, 0); err != nil {
		s.t.Fatalf("clock of %s: %v", s.Addr(), err)
	}
}

func compileShim(t testing.TB) string {
	t.Helper()
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		missing(t, "no gcc on PATH: install the Debian package gcc, which makes a server's clock settable")
	}
	dir := t.TempDir()
	source, shim := filepath.Join(dir, "clock_shim.c"), filepath.Join(dir, "clock_shim.so")
	if err := os.WriteFile(source, clockShim, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", shim, source).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	return shim
}
