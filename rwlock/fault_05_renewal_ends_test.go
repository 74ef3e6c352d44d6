package rwlock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
func (p *process) listen() *heard {
	h := new(heard)
	p.link.OnCommand(func(cmd []string) {
		if name := scriptOf(cmd); name == scripts.Renew || name == scripts.Release {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, hold := range holdsOf(cmd) {
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
		inFakeTime(t, func(w *world) {
			p := w.process()
			p.warmUp()
			h := p.listen()
			lease := p.lock("n", rwlock.Write)
			p.link.Delay(80 * time.Millisecond)
			w.pass(after)
			w.release(lease)
			w.pass(5 * w.ttl)
			require.Equal(w.t, 1, h.count(scripts.Release))
			require.Empty(w.t, h.afterRelease(), "released after %v", after)
			w.onlyTokensLeft()
		})
	}
}

func TestF05RenewalEndsWithTheLease(t *testing.T) {
	for name, end := range map[string]func(w *world, p *process, lease *rwlock.Lease){
		"MaxHold":  func(w *world, _ *process, lease *rwlock.Lease) { w.untilOver(lease) },
		"loss":     func(w *world, _ *process, lease *rwlock.Lease) { w.flushAll(); w.untilOver(lease) },
		"Close":    func(w *world, p *process, _ *rwlock.Lease) { require.NoError(w.t, p.Close()) },
		"cut link": func(w *world, p *process, lease *rwlock.Lease) { p.die(); w.untilOver(lease); p.link.Restore() },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.process()
				h := p.listen()
				lease := p.lock("n", rwlock.Write, rwlock.WithMaxHold(3*w.ttl+w.ttl/2))
				w.pass(w.ttl)
				require.GreaterOrEqual(w.t, h.count(scripts.Renew), 2)
				end(w, p, lease)
				w.pass(time.Second)
				renewed := h.count(scripts.Renew)
				w.pass(7 * 24 * time.Hour / 1000)
				require.Equal(w.t, renewed, h.count(scripts.Renew))
				require.Empty(w.t, w.inspect("n").Holders)
			})
		})
	}
}

func TestF05HolderThatNeverReleasesIsCapped(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.process(), w.process()
		forgotten := p.lock("n", rwlock.Write, rwlock.WithMaxHold(w.short))
		over := watch(forgotten)
		next := q.queue("n", rwlock.Write)
		q.link.Delay(time.Millisecond) // without it all happens in the same moment of fake time
		w.release(next.granted())
		require.True(w.t, over.before(next.at))
		require.Equal(w.t, rwlock.MaxHold, w.loss(forgotten.Err()).Reason)
	})
}
