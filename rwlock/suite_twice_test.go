package rwlock_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed74116694/fencelock/scripts"
)

// The same suite, with every script run twice for each request of every process: nobody can tell the difference.
func TestSuiteWithEveryRequestTwice(t *testing.T) {
	t.Parallel() // on real servers most of the time is waiting
	for _, p := range everyPlace(t) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range suite {
				t.Run(c.name, func(t *testing.T) {
					p.enter(t, func(w *world) {
						w.twice = true
						c.test(w)
					})
				})
			}
		})
	}
}

// sendTwice makes every script of the process run twice from now on. Between the two another process may have made
// room, so only a hold that the first run found granted is compared: it still is, with the same token.
func (p *process) sendTwice() {
	isScript := func(cmd []string) bool { return scriptOf(cmd) != "" }
	p.link.Duplicate(isScript, func(cmd []string, first, second string) {
		switch scriptOf(cmd) {
		case scripts.Acquire, scripts.Join, scripts.Renew:
			one, two := strings.Split(first, "\r\n"), strings.Split(second, "\r\n")
			if len(one) > 3 && one[1] == ":1" && !slices.Equal(one[:3], two[:3]) { // number of fields, status, token
				p.w.t.Errorf("%s %q was answered by %q, and again by %q", scriptOf(cmd), cmd[3:], first, second)
			}
		}
	})
}
