package redlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// refuseReleasesOf makes the masters refuse each release of this lock, and gives up a request for it: from then on,
// other releases of the process in the background wait for a probe.
func (p *peer) refuseReleasesOf(t *testing.T, book *scriptBook, name string) {
	release := book.running(scripts.Release)
	for _, link := range p.links {
		link.Deny(func(cmd []string) string {
			if release(cmd) && strings.Contains(cmd[3], name) {
				return "BUSY not now"
			}
			return ""
		})
		link.DelayNextReply(book.running(scripts.Acquire), 40*time.Millisecond)
	}
	_, err := p.Lock(soon(t, 20*time.Millisecond), name)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	time.Sleep(100 * time.Millisecond)
}

// A single attempt whose grants came too late asks again. The holds of those grants do not refuse it.
func TestASingleAttemptIsNotRefusedByItsLateGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 2 * time.Second
		s, book := newSet(t, 3), newScriptBook()
		p := s.peer(0, redlock.WithNodeTimeout(ttl-time.Millisecond))
		book.watch(p)
		p.warm(t)
		p.refuseReleasesOf(t, book, "other")
		for i := range 3 {
			for _, link := range p.links[1:] {
				link.DelayNextReply(book.running(scripts.Acquire), ttl-15*time.Millisecond)
			}
			lease, err := p.TryLock(t.Context(), fmt.Sprint("n", i), rwlock.WithTTL(ttl))
			require.NoError(t, err)
			require.NoError(t, lease.Err())
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}

// A single attempt is not refused by an attempt of its process that was given up while its requests were on their way.
func TestASingleAttemptIsNotRefusedByOneGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, book := newSet(t, 3), newScriptBook()
		p := s.peer(0)
		book.watch(p)
		p.warm(t)
		p.refuseReleasesOf(t, book, "other")
		for i := range 3 {
			name := fmt.Sprint("n", i)
			for _, link := range p.links[1:] {
				link.DelayNextReply(book.running(scripts.Acquire), 40*time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_, err := p.TryLock(ctx, name)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			lease, err := p.TryLock(t.Context(), name)
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}
