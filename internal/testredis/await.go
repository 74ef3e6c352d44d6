//go:build unix

package testredis

import (
	"testing"
	"time"
)

// await returns when the condition holds, and ends the test if that does not come about.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !awaited(holds) {
		t.Fatalf("testredis: after %v it is not the case that %s", startLimit, what)
	}
}

// awaited looks at the condition every few milliseconds until it holds, or startLimit is over.
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
