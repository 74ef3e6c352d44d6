package rwlock_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// overtakeReleases holds up each release on its way to the server for a moment, so that a request that does not wait
// for the answer to the release arrives before it.
func (p *process) overtakeReleases(d time.Duration) {
	release := running("release")
	p.link.OnCommand(func(cmd []string) {
		if release(cmd) {
			time.Sleep(d)
		}
	})
}

// refuseReleasesOf makes the server refuse each release of this lock, and gives up a request for it: from then on,
// other releases of the process in the background wait for a probe.
func (p *process) refuseReleasesOf(name string) {
	release := running("release")
	p.link.Deny(func(cmd []string) string {
		if release(cmd) && strings.Contains(cmd[3], name) {
			return "BUSY not now"
		}
		return ""
	})
	struck := p.link.DelayNextReply(running("acquire"), 100*time.Millisecond)
	ctx, cancel := context.WithTimeout(p.w.ctx, 50*time.Millisecond)
	defer cancel()
	_, err := p.Lock(ctx, name)
	require.ErrorIs(p.w.t, err, context.DeadlineExceeded)
	<-struck
	p.w.settle()
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
		p := w.process()
		p.warmUp()
		p.refuseReleasesOf("other")
		for i := range 3 {
			// The reply is late for the client's trust, and the hold still stands on the server.
			struck := p.link.DelayNextReply(running("acquire"), ttl-20*time.Millisecond)
			lease, err := p.TryLock(w.ctx, fmt.Sprint("n", i), rwlock.WithTTL(ttl))
			<-struck
			require.NoError(w.t, err)
			require.NoError(w.t, lease.Err())
			w.release(lease)
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
					p := w.process()
					p.warmUp()
					p.overtakeReleases(10 * time.Millisecond)
					for i := range 20 {
						name := fmt.Sprint("n", i)
						struck := p.link.DelayNextReply(running("acquire"), 100*time.Millisecond)
						ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
						_, err := giveUp(p, ctx, name)
						require.ErrorIs(w.t, err, context.DeadlineExceeded)
						cancel()
						<-struck
						lease, err := try(p, w.ctx, name)
						require.NoError(w.t, err)
						w.release(lease)
					}
				})
			})
		}
	}
}

// A single attempt is not refused by a crowd of its process that gave up just before.
func TestASingleAttemptIsNotRefusedByACrowdThatGaveUp(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		p.warmUp()
		p.overtakeReleases(10 * time.Millisecond)
		held := w.process().lock("n", rwlock.Write)
		ctx, stop := context.WithCancel(w.ctx)
		defer stop()
		var all []*pending
		for range crowd {
			all = append(all, p.acquire(ctx, "n", rwlock.Write))
		}
		w.untilWaiting("n", crowd)
		stop()
		for _, a := range all {
			require.Error(w.t, a.failed())
		}
		w.release(held) // to a waiter of the crowd
		lease, err := p.TryLock(w.ctx, "n")
		require.NoError(w.t, err)
		w.release(lease)
	})
}

// A release that waits for a probe of its server holds up no single attempt.
func TestASingleAttemptDoesNotWaitForAProbe(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		p.warmUp()
		p.refuseReleasesOf("other")
		other := w.process()
		held := other.lock("n", rwlock.Write)
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		_, err := p.Lock(ctx, "n")
		require.ErrorIs(w.t, err, context.DeadlineExceeded)
		began := time.Now()
		_, err = p.TryLock(w.ctx, "n")
		require.ErrorIs(w.t, err, rwlock.ErrNotAcquired)
		require.Zero(w.t, time.Since(began))
		w.release(held)
	})
}

// The wait for the answer to a release ends with the context, and the error says that the server has not answered.
func TestASingleAttemptAfterOneGivenUpOnASilentServer(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.process()
		p.warmUp()
		p.link.Blackhole(testredis.Both)
		for range 3 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(w.ctx, 100*time.Millisecond)
			_, err := p.TryLock(ctx, "n")
			cancel()
			require.ErrorIs(w.t, err, context.DeadlineExceeded)
			require.ErrorIs(w.t, err, rwlock.ErrNoQuorum)
			require.Equal(w.t, 100*time.Millisecond, time.Since(began))
		}
		p.link.Restore()
	})
}
