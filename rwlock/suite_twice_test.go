package rwlock_test

import (
	"testing"

	"github.com/seed74116694/fencelock/internal/testkit"
)

// The same suite, with every script run twice for each request of every process: nobody can tell the difference.
func TestSuiteWithEveryRequestTwice(t *testing.T) {
	t.Parallel() // on real servers most of the time is waiting
	for _, p := range testkit.Places(t) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for _, c := range suite {
				t.Run(c.name, func(t *testing.T) {
					p.Enter(t, observed(func(w *world) {
						w.Twice = true
						c.test(w)
					}))
				})
			}
		})
	}
}
