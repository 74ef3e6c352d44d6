package rwlock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/rwlock"
)

// A single attempt does not wait for its process's releases one after the other: two round trips would be too long.
func TestASingleAttemptWaitsForItsReleasesTogether(t *testing.T) {
	locks := map[string]string{"the same lock": "n", "another lock": "other"}
	testkit.EachInFakeTime(t, 3, locks, func(w *world, name string) {
		nodeTimeout := w.TTL / 20
		p, holder := w.ProcessAt(nodeTimeout*3/10), w.Process()
		p.WarmUp()
		var held []*rwlock.Lease
		for _, name := range []string{"n", "other"} {
			held = append(held, holder.Take(name, rwlock.Write))
		}
		var giveUps []context.CancelFunc
		var waiters []*pending
		for _, name := range []string{name, "n"} {
			ctx, giveUp := context.WithCancel(w.Ctx)
			giveUps, waiters = append(giveUps, giveUp), append(waiters, p.Acquire(ctx, name, rwlock.Write))
		}
		w.Pass(4 * nodeTimeout) // until they wait
		w.Release(held...)
		for i, giveUp := range giveUps {
			giveUp()
			require.ErrorIs(w, waiters[i].Failed(), context.Canceled)
			w.Pass(nodeTimeout / 50)
		}
		lease := got(p.TryLock(w.Ctx, "n")).orFail(w)
		w.Release(lease)
	})
}

// A message of a hand-off may overtake the answer that the hold is queued. Two readers of a process are granted the
// lock at once while that answer is late for the second: it is not to sleep until its next refresh, in whatever
// deployment.
func TestAMessageThatOvertakesTheAnswer(t *testing.T) {
	for name, mode := range map[string]rueidis.ClientMode{
		"standalone": rueidis.ClientModeStandalone,
		"sentinel":   rueidis.ClientModeSentinel,
		"cluster":    rueidis.ClientModeCluster,
	} {
		for _, late := range []time.Duration{5 * time.Millisecond, 30 * time.Millisecond} {
			t.Run(name+", "+late.String()+" late", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { overtaken(t, mode, late) })
			})
		}
	}
}

func overtaken(t *testing.T, mode rueidis.ClientMode, late time.Duration) {
	mini := testredis.NewMini(t)
	holder := testkit.New(t, mini.Client(t))
	link := mini.NewLink()
	waiter := testkit.New(t, newFailingOver(t, mode, link))
	// Every script of miniredis has an interpreter of its own, as if its scripts had been flushed. So where the server is
	// told by that, the subscription is made anew with the first message, and the second message may come in between.
	most := late
	if mode != rueidis.ClientModeStandalone {
		most += transport.BackoffMin
	}
	var granted [2]time.Time
	over := make(chan error, len(granted))
	read := func(i int) {
		lease, err := waiter.RLock(context.Background(), "n")
		if granted[i] = time.Now(); err == nil {
			time.Sleep(time.Minute)
			err = lease.Release(context.Background())
		}
		over <- err
	}
	for round := range 3 { // first nobody listens yet
		held := got(holder.Lock(t.Context(), "n")).orFail(t)
		go read(0)
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		link.DelayNextReply(testredis.Named("EVALSHA"), late)
		go read(1)
		synctest.Wait()
		require.NoError(t, held.Release(t.Context()))
		begun := time.Now()
		for range granted {
			require.NoError(t, <-over)
		}
		for _, at := range granted {
			require.True(t, round == 0 || at.Sub(begun) <= most, "it took %v", at.Sub(begun))
		}
		time.Sleep(2 * time.Minute)
	}
}

// refuseReleasesOf has the server refuse each release of this lock, so that others wait for a probe.
func refuseReleasesOf(p *process, name string) {
	p.Link.Deny(answering("BUSY not now", func(cmd []string) bool {
		return testkit.Running("release")(cmd) && strings.Contains(cmd[3], name)
	}))
	struck := p.Link.DelayNextReply(testkit.Running("acquire"), 100*time.Millisecond)
	require.ErrorIs(p.W, errorOf(p.Lock(p.W.Soon(50*time.Millisecond), name)), context.DeadlineExceeded)
	<-struck
	p.W.Settle()
}

// A release that waits for a probe of its server holds up no single attempt.
func TestASingleAttemptDoesNotWaitForAProbe(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		p.WarmUp()
		refuseReleasesOf(p, "other")
		other := w.Process()
		held := other.Take("n", rwlock.Write)
		require.ErrorIs(w, errorOf(p.Lock(w.Soon(time.Second), "n")), context.DeadlineExceeded)
		began := time.Now()
		require.ErrorIs(w, errorOf(p.TryLock(w.Ctx, "n")), rwlock.ErrNotAcquired)
		require.Zero(w, time.Since(began))
		w.Release(held)
	}))
}
