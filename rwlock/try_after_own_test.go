package rwlock_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// overtakeReleases holds up each release on its way to the server for a moment, so that a request that does not wait
// for the answer to the release arrives before it.
func overtakeReleases(p *process, d time.Duration) {
	release := testkit.Running("release")
	p.Link.OnCommand(func(cmd []string) {
		if release(cmd) {
			time.Sleep(d)
		}
	})
}

// refuseReleasesOf makes the server refuse each release of this lock, and gives up a request for it: from then on,
// other releases of the process in the background wait for a probe.
func refuseReleasesOf(p *process, name string) {
	release := testkit.Running("release")
	p.Link.Deny(func(cmd []string) string {
		if release(cmd) && strings.Contains(cmd[3], name) {
			return "BUSY not now"
		}
		return ""
	})
	struck := p.Link.DelayNextReply(testkit.Running("acquire"), 100*time.Millisecond)
	ctx, cancel := context.WithTimeout(p.W.Ctx, 50*time.Millisecond)
	defer cancel()
	_, err := p.Lock(ctx, name)
	require.ErrorIs(p.W, err, context.DeadlineExceeded)
	<-struck
	p.W.Settle()
}

// singleAttempts are the calls that are not refused by what their own process gives back.
var singleAttempts = map[string]func(p *process, ctx context.Context, name string) (*rwlock.Lease, error){
	"write": func(p *process, ctx context.Context, name string) (*rwlock.Lease, error) { return p.TryLock(ctx, name) },
	"read": func(p *process, ctx context.Context, name string) (*rwlock.Lease, error) {
		return p.TryRLock(ctx, name)
	},
}

// A single attempt whose grant came too late asks again. The hold of the grant that came too late does not refuse it.
func TestASingleAttemptIsNotRefusedByItsLateGrant(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const ttl = 2 * time.Second
		p := w.Process()
		p.WarmUp()
		refuseReleasesOf(p, "other")
		for i := range 3 {
			// The reply is late for the client's trust, and the hold still stands on the server.
			struck := p.Link.DelayNextReply(testkit.Running("acquire"), ttl-20*time.Millisecond)
			lease, err := p.TryLock(w.Ctx, fmt.Sprint("n", i), rwlock.WithTTL(ttl))
			<-struck
			require.NoError(w, err)
			require.NoError(w, lease.Err())
			w.Release(lease)
		}
	})
}

// A single attempt is not refused by an attempt of its process that was given up while its request was on its way.
func TestASingleAttemptIsNotRefusedByOneGivenUp(t *testing.T) {
	before := maps.Clone(singleAttempts)
	before["Lock"] = func(p *process, ctx context.Context, name string) (*rwlock.Lease, error) { return p.Lock(ctx, name) }
	before["RLock"] = func(p *process, ctx context.Context, name string) (*rwlock.Lease, error) {
		return p.RLock(ctx, name)
	}
	for former, giveUp := range before {
		for mode, try := range singleAttempts {
			if former == "RLock" && mode == "read" {
				continue // it is not refused by a read
			}
			t.Run(former+", "+mode, func(t *testing.T) {
				inFakeTime(t, func(w *world) {
					p := w.Process()
					p.WarmUp()
					overtakeReleases(p, 10*time.Millisecond)
					for i := range 20 {
						name := fmt.Sprint("n", i)
						struck := p.Link.DelayNextReply(testkit.Running("acquire"), 100*time.Millisecond)
						ctx, cancel := context.WithTimeout(w.Ctx, 50*time.Millisecond)
						_, err := giveUp(p, ctx, name)
						require.ErrorIs(w, err, context.DeadlineExceeded)
						cancel()
						<-struck
						lease, err := try(p, w.Ctx, name)
						require.NoError(w, err)
						w.Release(lease)
					}
				})
			})
		}
	}
}

// A single attempt is not refused by a crowd of its process that gave up just before.
func TestASingleAttemptIsNotRefusedByACrowdThatGaveUp(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		p.WarmUp()
		overtakeReleases(p, 10*time.Millisecond)
		held := w.Process().Take("n", rwlock.Write)
		ctx, stop := context.WithCancel(w.Ctx)
		defer stop()
		var all []*pending
		for range crowd {
			all = append(all, p.Acquire(ctx, "n", rwlock.Write))
		}
		w.UntilWaiting("n", crowd)
		stop()
		for _, a := range all {
			require.Error(w, a.Failed())
		}
		w.Release(held) // to a waiter of the crowd
		lease, err := p.TryLock(w.Ctx, "n")
		require.NoError(w, err)
		w.Release(lease)
	})
}

// A release that waits for a probe of its server holds up no single attempt.
func TestASingleAttemptDoesNotWaitForAProbe(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		p.WarmUp()
		refuseReleasesOf(p, "other")
		other := w.Process()
		held := other.Take("n", rwlock.Write)
		ctx, cancel := context.WithTimeout(w.Ctx, time.Second)
		defer cancel()
		_, err := p.Lock(ctx, "n")
		require.ErrorIs(w, err, context.DeadlineExceeded)
		began := time.Now()
		_, err = p.TryLock(w.Ctx, "n")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		require.Zero(w, time.Since(began))
		w.Release(held)
	})
}

// The wait for the answer to a release ends with the context, and the error says that the server has not answered.
func TestASingleAttemptAfterOneGivenUpOnASilentServer(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		p.WarmUp()
		p.Link.Blackhole(testredis.Both)
		for range 3 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(w.Ctx, 100*time.Millisecond)
			_, err := p.TryLock(ctx, "n")
			cancel()
			require.ErrorIs(w, err, context.DeadlineExceeded)
			require.ErrorIs(w, err, rwlock.ErrNoQuorum)
			require.Equal(w, 100*time.Millisecond, time.Since(began))
		}
		p.Link.Restore()
	})
}
