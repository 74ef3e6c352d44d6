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
	clock string // the file that the shim reads
}

// StartSkewed starts a server whose clock is initially right. If no C compiler is installed the test skips, and fails
// if CI=true.
func StartSkewed(t testing.TB, args ...string) *Skewed {
	t.Helper()
	Require(t)
	return StartSkewedBinary(t, Binaries()[0], args...)
}

// StartSkewedBinary is StartSkewed for one of Binaries.
func StartSkewedBinary(t testing.TB, binary string, args ...string) *Skewed {
	t.Helper()
	shim := compileShim(t)
	s := &Skewed{clock: filepath.Join(t.TempDir(), "clock")}
	s.Server = newServer(t, binary, args...)
	s.env = []string{"LD_PRELOAD=" + shim, "FENCELOCK_CLOCK=" + s.clock}
	s.Skew(0)
	s.begin()
	return s
}

// Skew sets the server's wall clock d ahead of the machine's, or behind it for a negative d. The setting survives
// Restart.
func (s *Skewed) Skew(d time.Duration) { s.set(d.Microseconds(), 0) }

// Stand has the server's wall clock stand still at a time, until the next Stand or Skew. The setting survives Restart.
func (s *Skewed) Stand(at time.Time) { s.set(0, at.UnixMicro()) }

func (s *Skewed) set(shift, stands int64) {
	s.t.Helper()
	words := binary.NativeEndian.AppendUint64(nil, uint64(shift))
	words = binary.NativeEndian.AppendUint64(words, uint64(stands))
	file, err := os.OpenFile(s.clock, os.O_CREATE|os.O_WRONLY, 0o600) // in place: the server has it mapped
	if err != nil {
		s.t.Fatalf("clock of %s: %v", s.Addr(), err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.WriteAt(words, 0); err != nil {
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
