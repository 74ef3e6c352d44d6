//go:build unix

package testredis

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

// Require skips the test if no server binary is installed. With CI=true it fails the test instead.
func Require(t testing.TB) {
	t.Helper()
	if len(Binaries()) > 0 {
		return
	}
	missing(t, "no redis-server on PATH: install the Debian package redis-server, or name a binary in FENCELOCK_SERVER")
}

// Program returns the path of a program, and skips the test if it is not installed. With CI=true it fails the test
// instead.
func Program(t testing.TB, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, "no "+name+" on PATH: install the Debian package "+debian)
	}
	return path
}

// missing skips a test because a program is missing. With CI=true it fails the test instead.
func missing(t testing.TB, what string) {
	t.Helper()
	end := t.Skip
	if os.Getenv("CI") == "true" {
		end = t.Fatal
	}
	end(what)
}

// Binaries returns the installed server binaries, the default one first: the one named by the variable
// FENCELOCK_SERVER, redis-server, Valkey. In a plain run it is the first alone: another kind of server runs no other Go
// code.
func Binaries() []string {
	var found []string
	for _, name := range []string{os.Getenv("FENCELOCK_SERVER"), "redis-server", valkey()} {
		path, err := exec.LookPath(name)
		if err == nil && !slices.Contains(found, path) {
			found = append(found, path)
		}
	}
	if len(found) > 1 && !All() {
		return found[:1]
	}
	return found
}

// The variable that names a Valkey, and its value to skip the tests that need a Valkey where none is installed.
const (
	valkeyVariable = "FENCELOCK_VALKEY"
	noValkey       = "none"
)

// valkey returns the installed Valkey, or "" if there is none: the one named by the variable FENCELOCK_VALKEY,
// valkey-server on PATH, the one that install-valkey has unpacked.
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

// Valkey returns the binary of a Valkey. If none is installed it skips the test. With CI=true it fails the test
// instead, unless FENCELOCK_VALKEY=none.
func Valkey(t testing.TB) string {
	t.Helper()
	path := valkey()
	const hint = "no valkey-server on PATH: run internal/test/testredis/install-valkey as root, or name a binary in " +
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
