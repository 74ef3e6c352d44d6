package testredis

import (
	"os"
	"testing"
)

// All reports whether every test runs, with every seed and on every kind of server: where FENCELOCK_TESTS=all. A plain
// run leaves out what takes long and finds little, see CONTRIBUTING.md.
func All() bool { return os.Getenv("FENCELOCK_TESTS") == "all" }

// NeedAll skips a test that a plain run leaves out.
func NeedAll(t testing.TB, why string) {
	t.Helper()
	if !All() {
		t.Skip(why + ": only with FENCELOCK_TESTS=all")
	}
}

// Few returns what a plain run takes of seeds, rounds, sizes, and otherwise all.
func Few[T any](few, all T) T {
	if All() {
		return all
	}
	return few
}
