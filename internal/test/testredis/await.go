//go:build unix

package testredis

import (
	"testing"
	"time"
)

// await returns when the condition holds. It fails the test if the condition does not hold within startLimit.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !awaited(holds) {
		t.Fatalf("testredis: after %v it is not the case that %s", startLimit, what)
	}
}

// awaited polls the condition every few milliseconds until it holds, or until startLimit is over.
func awaited(holds func() bool) bool {
	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-limit.C:
			return false
		case <-tick.C:
		}
	}
	return true
}
