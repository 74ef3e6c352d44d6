package redlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// refuseReleasesOf makes the masters refuse each release of this lock, and gives up a request for it: from then on,
// other releases of the process in the background wait for a probe.
func refuseReleasesOf(w *world, p *process, name string) {
	release := w.Running(scripts.Release)
	for _, link := range p.Links {
		link.Deny(func(cmd []string) string {
			if release(cmd) && strings.Contains(cmd[3], name) {
				return "BUSY not now"
			}
			return ""
		})
		link.DelayNextReply(w.Running(scripts.Acquire), 40*time.Millisecond)
	}
	_, err := p.Lock(w.Soon(20*time.Millisecond), name)
	require.ErrorIs(w, err, context.DeadlineExceeded)
	time.Sleep(100 * time.Millisecond)
}

// A single attempt whose grants came too late asks again. The holds of those grants do not refuse it.
func TestASingleAttemptIsNotRefusedByItsLateGrants(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		const ttl = 2 * time.Second
		p := w.ProcessAt(0, redlock.WithNodeTimeout(ttl-time.Millisecond))
		p.Section("warm-up")
		refuseReleasesOf(w, p, "other")
		for i := range 3 {
			for _, link := range p.Links[1:] {
				link.DelayNextReply(w.Running(scripts.Acquire), ttl-15*time.Millisecond)
			}
			lease, err := p.TryLock(w.Ctx, fmt.Sprint("n", i), rwlock.WithTTL(ttl))
			require.NoError(w, err)
			require.NoError(w, lease.Err())
			w.Release(lease)
		}
	})
}

// A single attempt is not refused by an attempt of its process that was given up while its requests were on their way.
func TestASingleAttemptIsNotRefusedByOneGivenUp(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.ProcessAt(0)
		p.Section("warm-up")
		refuseReleasesOf(w, p, "other")
		for i := range 3 {
			name := fmt.Sprint("n", i)
			for _, link := range p.Links[1:] {
				link.DelayNextReply(w.Running(scripts.Acquire), 40*time.Millisecond)
			}
			_, err := p.TryLock(w.Soon(20*time.Millisecond), name)
			require.ErrorIs(w, err, context.DeadlineExceeded)
			require.NoError(w, p.TryOnce(name))
		}
	})
}
