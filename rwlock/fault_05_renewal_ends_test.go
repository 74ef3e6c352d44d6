package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F5: renewal belongs to the lease and is ended before the release is sent; WithMaxHold caps it.

// request is one to renew or release a hold.
type request struct {
	script scripts.Name
	hold   string
}

// listen notes the renewals and releases that reach the server over the process's link, in the order of arrival.
func listen(p *process) *testkit.Notes[request] {
	heard := new(testkit.Notes[request])
	p.Link.OnCommand(func(cmd []string) {
		if name := testkit.ScriptOf(cmd); name == scripts.Renew || name == scripts.Release {
			for _, hold := range testkit.HoldsOf(cmd) {
				heard.Add(request{name, hold})
			}
		}
	})
	return heard
}

func TestF05NoRenewalFollowsARelease(t *testing.T) {
	// A renewal is due at 3.0 s to 3.6 s, is under way for 160 ms, and then again.
	for after := 2900 * time.Millisecond; after < 4*time.Second; after += 23 * time.Millisecond {
		inFakeTime(t, withOne(func(w *world, p *process) {
			p.WarmUp()
			heard := listen(p)
			lease := p.Take("n", rwlock.Write)
			p.Link.Delay(80 * time.Millisecond)
			w.Pass(after)
			w.Release(lease)
			w.Pass(5 * w.TTL)
			released := map[string]bool{}
			for _, r := range heard.All() {
				require.False(w, released[r.hold], "%v, released after %v", r, after)
				released[r.hold] = r.script == scripts.Release
			}
			require.Equal(w, map[string]bool{lease.Owner(): true}, released)
			w.OnlyTokensLeft()
		}))
	}
}
