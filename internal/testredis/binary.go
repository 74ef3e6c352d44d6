//go:build unix

package testredis

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

// Require skips the test where no server binary is installed; with CI=true it fails it instead.
func Require(t testing.TB) {
	t.Helper()
	if len(Binaries()) > 0 {
		return
	}
	missing(t, "no redis-server on PATH: install the Debian package redis-server, or name a binary in FENCELOCK_SERVER")
}

// missing ends a test for want of a program: where CI=true as a failure.
func missing(t testing.TB, what string) {
	t.Helper()
	end := t.Skip
	if os.Getenv("CI") == "true" {
		end = t.Fatal
	}
	end(what)
}

// Binaries returns the server binaries that are installed, the default one first: what the variable
// FENCELOCK_SERVER names, redis-server, Valkey.
func Binaries() []string {
	var found []string
	for _, name := range []string{os.Getenv("FENCELOCK_SERVER"), "redis-server", valkey()} {
		path, err := exec.LookPath(name)
		if err == nil && !slices.Contains(found, path) {
			found = append(found, path)
		}
	}
	return found
}

// The variable that names a Valkey, and its value where there is none and the tests that need one are to be skipped.
const (
	valkeyVariable = "FENCELOCK_VALKEY"
	noValkey       = "none"
)

// valkey returns the Valkey that is installed, "" if none is: what the variable FENCELOCK_VALKEY names, valkey-server
// on PATH, what install-valkey has unpacked.
func valkey() string {
	named := os.Getenv(valkeyVariable)
	if named == noValkey {
		return ""
	}
	for _, name := range []string{named, "valkey-server", "/opt/fencelock-valkey/valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Valkey returns the binary of a Valkey. Where none is installed it skips the test; with CI=true it fails it instead,
// unless FENCELOCK_VALKEY=none says that none can be had.
func Valkey(t testing.TB) string {
	t.Helper()
	path := valkey()
	const hint = "no valkey-server on PATH: run internal/testredis/install-valkey as root, or name a binary in " +
		valkeyVariable
	switch {
	case path != "":
	case os.Getenv(valkeyVariable) == noValkey:
		t.Skip(hint)
	default:
		missing(t, hint)
	}
	return path
}
