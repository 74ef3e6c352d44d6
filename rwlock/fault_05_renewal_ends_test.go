package rwlock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// F5: renewal belongs to the lease and is ended before the release is sent; WithMaxHold caps it.

// heard is what the server was asked to do to holds, in the order of arrival.
type heard struct {
	mu  sync.Mutex
	all []request
}

type request struct {
	script scripts.Name
	hold   string
}

// listen notes the renewals and releases that reach the server over the process's link.
func listen(p *process) *heard {
	h := new(heard)
	p.Link.OnCommand(func(cmd []string) {
		if name := testkit.ScriptOf(cmd); name == scripts.Renew || name == scripts.Release {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, hold := range testkit.HoldsOf(cmd) {
				h.all = append(h.all, request{name, hold})
			}
		}
	})
	return h
}

// afterRelease returns the renewals that came after the first release of their hold.
func (h *heard) afterRelease() (late []request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	released := map[string]bool{}
	for _, r := range h.all {
		if r.script == scripts.Release {
			released[r.hold] = true
		} else if released[r.hold] {
			late = append(late, r)
		}
	}
	return late
}

func (h *heard) count(script scripts.Name) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.all {
		if r.script == script {
			n++
		}
	}
	return n
}

func TestF05NoRenewalFollowsARelease(t *testing.T) {
	// A renewal is due at 3.0 s to 3.6 s, is under way for 160 ms, and then again.
	for after := 2900 * time.Millisecond; after < 4*time.Second; after += 23 * time.Millisecond {
		inFakeTime(t, withOne(func(w *world, p *process) {
			p.WarmUp()
			h := listen(p)
			lease := p.Take("n", rwlock.Write)
			p.Link.Delay(80 * time.Millisecond)
			w.Pass(after)
			w.Release(lease)
			w.Pass(5 * w.TTL)
			require.Equal(w, 1, h.count(scripts.Release))
			require.Empty(w, h.afterRelease(), "released after %v", after)
			w.OnlyTokensLeft()
		}))
	}
}
