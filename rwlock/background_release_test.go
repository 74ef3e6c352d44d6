package rwlock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// failedReleases notes what is reported of releases in the background.
type failedReleases struct {
	testkit.Notes[error]
	log testkit.Log
}

func (f *failedReleases) options() []rwlock.Option {
	return []rwlock.Option{rwlock.WithBackgroundRelease(), f.log.Option(), rwlock.WithTrace(&rwlock.Trace{
		ReleaseFailed: func(_ context.Context, _ rwlock.TraceEvent, err error) { f.Add(err) },
	})}
}

// pairs are the ways to take and give back a lock.
var pairs = map[string]func(w *world, p *process, name string) error{
	"lease":          func(w *world, p *process, name string) error { return taking(p)["Lock"](w.Ctx, name) },
	"single attempt": func(_ *world, p *process, name string) error { return p.TryOnce(name) },
	"reader":         func(w *world, p *process, name string) error { return taking(p)["RLock"](w.Ctx, name) },
	"Do":             func(w *world, p *process, name string) error { return taking(p)["Do"](w.Ctx, name) },
	"RWMutex":        func(w *world, p *process, name string) error { return taking(p)["RWMutex.Lock"](w.Ctx, name) },
	"RWMutex, single attempt": func(w *world, p *process, name string) error {
		return lockAndUnlock(w.Ctx, p.RWMutex(name), (*rwlock.RWMutex).TryLock, (*rwlock.RWMutex).Unlock)
	},
	"RWMutex, other mode": func(w *world, p *process, name string) error {
		return taking(p)["RWMutex.RLock"](w.Ctx, name)
	},
	"several": func(w *world, p *process, name string) error {
		return giveBack(p.LockAll(w.Ctx, rwlock.Writes(name, name+"2")))
	},
}

// A pair takes one round trip: the caller waits for no release, and the next request is sent behind it. None is sent
// twice.
func TestAPairTakesOneRoundTrip(t *testing.T) {
	const way, n = 10 * time.Millisecond, 5
	for name, pair := range pairs {
		subtestInFakeTime(t, name, func(w *world) {
			w.Net.Tuned = true
			p := w.ProcessAt(way, rwlock.WithBackgroundRelease())
			p.WarmUp()
			require.NoError(w, pair(w, p, "m")) // the server knows the scripts
			w.Pass(time.Second)
			requests := w.Requests(p)
			began := time.Now()
			for range n {
				require.NoError(w, pair(w, p, "n"))
				synctest.Wait() // the release has left
			}
			require.Equal(w, time.Duration(n)*2*way, time.Since(began))
			w.Pass(time.Second)
			want := map[scripts.Name]int{scripts.Acquire: n, scripts.Release: n}
			if name == "several" {
				want = map[scripts.Name]int{scripts.Group: n, scripts.Release: 2 * n}
			}
			count := requests.Counts()
			delete(count, scripts.Renew) // a shared hold is renewed once messages arrive
			require.Equal(w, want, count)
			w.OnlyTokensLeft()
		})
	}
}

// A call behind a release of its own process ends while its request is on its way. What that brings about is released.
func TestACallThatWasSentBehindAReleaseIsReleased(t *testing.T) {
	const way = 10 * time.Millisecond
	inFakeTime(t, func(w *world) {
		p := w.ProcessAt(way, rwlock.WithBackgroundRelease())
		p.WarmUp()
		w.Pass(time.Second) // until the server has answered the release, whose script it did not know
		require.NoError(w, pairs["single attempt"](w, p, "n"))
		err := giveBack(p.TryLock(w.Soon(3*way/2), "n"))
		require.ErrorIs(w, err, context.DeadlineExceeded)
		require.True(w, rwlock.Indeterminate(err), "it was not sent")
		w.Pass(time.Second)
		require.NoError(w, giveBack(w.Process().TryLock(w.Ctx, "n")))
	})
}

// A Lock is sent behind the release in the background before it, and awaits no answer. The scheduler may hold a release
// back until after the request, which waits for a hand-off then, so the pairs of two processes of many have to take one
// round trip.
func TestALockIsSentBehindARelease(t *testing.T) {
	const way = 10 * time.Millisecond
	inFakeTime(t, func(w *world) {
		w.Net.Tuned = true
		behind := 0
		for range 20 {
			p := w.ProcessAt(way, rwlock.WithBackgroundRelease())
			p.WarmUp()
			w.Pass(time.Second)
			require.NoError(w, pairs["lease"](w, p, "n"))
			began := time.Now()
			require.NoError(w, pairs["lease"](w, p, "n"))
			if time.Since(began) == 2*way {
				behind++
			}
		}
		require.Greater(w, behind, 1)
	})
}

// forgetReleases has the server not know the script of each release: what follows overtakes it.
func forgetReleases(p *process) {
	p.Link.Deny(answering("NOSCRIPT No matching script.", func(cmd []string) bool {
		return testkit.Running(scripts.Release)(cmd) && cmd[0] == "EVALSHA"
	}))
}

// Where a request overtakes the release of its own process, it is handed the lock, and nothing waits for a refresh. A
// single attempt is refused for the sake of that hold, and asks again once the release is answered.
func TestARequestThatOvertakesItsRelease(t *testing.T) {
	for name, pair := range pairs {
		subtestInFakeTime(t, name, func(w *world) {
			const way, n = 10 * time.Millisecond, 3
			p := w.ProcessAt(way, rwlock.WithBackgroundRelease())
			hasWaited(p)
			p.WarmUp()
			w.Pass(time.Second)
			forgetReleases(p)
			began := time.Now()
			for range n {
				require.NoError(w, pair(w, p, "n"))
			}
			require.LessOrEqual(w, time.Since(began), n*6*way)
			w.Pass(time.Second)
			w.OnlyTokensLeft()
		})
	}
}

// What the caller is not told: the lease or server is gone, or it hangs, refuses, or its answer is lost.
func TestFailuresOfAReleaseInTheBackground(t *testing.T) {
	release := testkit.Running(scripts.Release)
	type failure struct {
		fail     func(w *world, p *process)
		reported error // nil for none
		stays    bool  // for the rest of its TTL
	}
	denies := func(text string) func(*world, *process) {
		return func(_ *world, p *process) { p.Link.Deny(answering(text, release)) }
	}
	eachInFakeTime(t, map[string]failure{
		"lost":                {func(w *world, _ *process) { w.FlushAll() }, rwlock.ErrLost, false},
		"hangs":               {func(_ *world, p *process) { p.Link.Blackhole(testredis.Both) }, rwlock.ErrNoQuorum, true},
		"is gone":             {func(_ *world, p *process) { p.CutOff(0) }, rwlock.ErrNoQuorum, true},
		"refuses for a time":  {denies("BUSY not now"), rwlock.ErrNoQuorum, true},
		"refuses for good":    {denies("NOPERM no"), rwlock.ErrNoQuorum, true},
		"the answer is lost":  {func(_ *world, p *process) { p.Link.DropNextReply(release) }, rwlock.ErrNoQuorum, false},
		"the request is lost": {func(_ *world, p *process) { p.Link.DropNextCommand(release) }, rwlock.ErrNoQuorum, false},

		"has forgotten the script": {func(w *world, _ *process) { w.FlushScripts() }, nil, false},
	}, func(w *world, c failure) {
		w.Net.Tuned = true
		var failed failedReleases
		p := w.Process(failed.options()...)
		p.WarmUp()
		w.Pass(time.Second)
		lease := p.Take("n", rwlock.Write)
		ctx := lease.Context(w.Ctx)
		c.fail(w, p)
		began := time.Now()
		require.NoError(w, lease.Release(w.Ctx))
		require.Zero(w, time.Since(began), "it waits")
		require.ErrorIs(w, context.Cause(ctx), rwlock.ErrReleased)
		w.Pass(w.TTL / 2)
		other, err := w.Process().TryLock(w.Ctx, "n")
		if c.stays {
			require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		} else {
			require.NoError(w, err)
			w.Release(other)
		}
		stats, all := p.Stats(), failed.All()
		switch c.reported {
		case nil:
			require.Empty(w, all)
			require.Empty(w, failed.log.Records("release"))
		case rwlock.ErrLost:
			require.Len(w, all, 1)
			require.Equal(w, lease.Token(), w.Loss(all[0]).Token)
			require.Equal(w, uint64(1), stats.Lost.Gone)
			require.Len(w, failed.log.Records("lease lost"), 1)
		default:
			require.Len(w, all, 1)
			require.ErrorIs(w, all[0], c.reported)
			require.Equal(w, uint64(1), stats.Unconfirmed)
			require.Len(w, failed.log.Records("release"), 1)
		}
		p.Link.Restore()
		w.Pass(w.TTL)
		w.Release(w.Process().Take("n", rwlock.Write))
		w.OnlyTokensLeft()
	})
}

// Release returns a loss that the process knows of, and sends nothing that the caller would have to be told of.
func TestAReleaseInTheBackgroundReturnsAKnownLoss(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var failed failedReleases
		p := w.Process(failed.options()...)
		for name, use := range map[string]func() error{
			"lease": func() error {
				lease := p.Take("n", rwlock.Write, rwlock.WithoutRenewal())
				w.Pass(2 * w.TTL)
				require.ErrorIs(w, lease.Err(), rwlock.ErrLost)
				return lease.Release(w.Ctx)
			},
			"not noticed before": func() error {
				lease := p.Take("n", rwlock.Write, rwlock.WithMaxHold(time.Second))
				time.Sleep(time.Second)
				return lease.Release(w.Ctx)
			},
			"Do": func() error {
				return p.Do(w.Ctx, "n", func(context.Context) error { w.Pass(2 * w.TTL); return nil }, rwlock.WithoutRenewal())
			},
			"RWMutex": func() error {
				mu := p.RWMutex("m", rwlock.WithMaxHold(time.Second))
				require.NoError(w, mu.Lock(w.Ctx))
				w.Pass(2 * time.Second)
				return mu.Unlock(w.Ctx)
			},
		} {
			require.ErrorIs(w, use(), rwlock.ErrLost, name)
			w.Settle()
		}
		require.Empty(w, failed.All())
	})
}

// Close waits for the releases under way, and no longer than the release timeout.
func TestCloseWaitsForReleasesInTheBackground(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const way = 100 * time.Millisecond
		p := w.ProcessAt(way, rwlock.WithBackgroundRelease())
		p.WarmUp()
		w.Pass(time.Second)
		leases := takeEach(p, numbered("n", 3))
		began := time.Now()
		w.Release(leases...)
		require.Zero(w, time.Since(began))
		require.NoError(w, p.Close())
		require.Equal(w, 2*way, time.Since(began))
		w.OnlyTokensLeft()

		const limit = 700 * time.Millisecond
		var failed failedReleases
		p = w.Process(append(failed.options(), rwlock.WithReleaseTimeout(limit))...)
		lease := p.Take("n", rwlock.Write)
		p.Link.Blackhole(testredis.Both)
		began = time.Now()
		require.NoError(w, lease.Release(w.Ctx))
		require.NoError(w, p.Close())
		require.Equal(w, limit, time.Since(began))
		require.Len(w, failed.All(), 1)
		require.ErrorIs(w, failed.All()[0], rwlock.ErrNoQuorum)
	})
}

// While a server hangs, so many releases return at once. Then each waits, until the server answers again.
func TestAStormOfReleasesInTheBackgroundIsBounded(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const most, limit = 1024, time.Second
		w.Net.Tuned = true
		p := w.Process(rwlock.WithBackgroundRelease(), rwlock.WithReleaseTimeout(limit), rwlock.WithTTL(time.Hour))
		p.WarmUp()
		leases := takeEach(p, numbered("n", most+3))
		p.Link.Hold(testredis.Both)
		began := time.Now()
		w.Release(leases[:most]...)
		require.Zero(w, time.Since(began))
		for _, lease := range leases[most : most+2] {
			began := time.Now()
			require.ErrorIs(w, lease.Release(w.Ctx), rwlock.ErrNoQuorum)
			require.LessOrEqual(w, time.Since(began), limit)
		}
		p.Link.Restore()
		w.Pass(time.Minute)
		began = time.Now()
		w.Release(leases[most+2])
		require.Zero(w, time.Since(began))
		w.Pass(time.Second)
		w.OnlyTokensLeft()
	})
}

// followsInTheBackground: no request of the process is refused by what it has released, in any order.
func followsInTheBackground(w *world) {
	p := w.Process(rwlock.WithBackgroundRelease())
	over, cancel := context.WithCancel(w.Ctx)
	lease := p.Take("n", rwlock.Write)
	cancel()
	require.NoError(w, lease.Release(over), "the end of its context does not keep the lock")
	for _, pair := range pairs {
		for range 5 {
			require.NoError(w, pair(w, p, "n"))
		}
	}
	require.NoError(w, p.Close())
	w.OnlyTokensLeft()
}

// A release that fails is reported also where the grant was not, since further events were waiting.
func TestAReleaseThatFailsAfterAnOverflow(t *testing.T) {
	inFakeTime(t, func(w *world) {
		room := make(chan struct{})
		var failed []error
		p := w.Process(rwlock.WithBackgroundRelease(), rwlock.WithTrace(&rwlock.Trace{
			Acquired:      func(context.Context, rwlock.TraceEvent) { <-room },
			ReleaseFailed: func(_ context.Context, _ rwlock.TraceEvent, err error) { failed = append(failed, err) },
		}))
		names := numbered("", 64)
		for p.Stats().EventsDropped == 0 {
			require.NoError(w, takeAll(p, w.Ctx, rwlock.Writes(names...)).granted(w).Release(w.Ctx))
			w.Settle()
		}
		held := p.Take("n", rwlock.Write)
		close(room)
		w.Settle()
		w.FlushAll()
		w.Release(held)
		w.Settle()
		require.Len(w, failed, 1)
		require.ErrorIs(w, failed[0], rwlock.ErrLost)
	})
}

// A single attempt does not wait for its process's releases one after the other: two round trips would be too long.
func TestASingleAttemptWaitsForItsReleasesTogether(t *testing.T) {
	locks := map[string]string{"the same lock": "n", "another lock": "other"}
	testkit.EachInFakeTime(t, 3, locks, func(w *world, name string) {
		nodeTimeout := w.TTL / 20
		p, holder := w.ProcessAt(nodeTimeout*3/10), w.Process()
		p.WarmUp()
		holder.Take("n", rwlock.Read) // which is not handed on: a hand-off sends the release for it at once
		holder.Take("other", rwlock.Read)
		var giveUps []context.CancelFunc
		var waiters []*pending
		for _, name := range []string{name, "n"} {
			ctx, giveUp := context.WithCancel(w.Ctx)
			giveUps, waiters = append(giveUps, giveUp), append(waiters, p.Acquire(ctx, name, rwlock.Write))
		}
		w.Pass(4 * nodeTimeout) // until they wait
		for i, giveUp := range giveUps {
			giveUp()
			require.ErrorIs(w, waiters[i].Failed(), context.Canceled)
			w.Pass(nodeTimeout / 50)
		}
		require.NoError(w, giveBack(p.TryRLock(w.Ctx, "n")))
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
	holder := lockerOf(t, mini.Client(t))
	link := mini.NewLink()
	waiter := lockerOf(t, newFailingOver(t, mode, link))
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
		held := expect.NoError(holder.Lock(t.Context(), "n")).In(t)
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
	require.ErrorIs(p.W, expect.ErrorOf(p.Lock(p.W.Soon(50*time.Millisecond), name)), context.DeadlineExceeded)
	<-struck
	p.W.Settle()
}

// A release that waits for a probe of its server holds up no single attempt.
func TestASingleAttemptDoesNotWaitForAProbe(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		p.WarmUp()
		refuseReleasesOf(p, "other")
		held := w.Process().Take("n", rwlock.Write)
		require.ErrorIs(w, expect.ErrorOf(p.Lock(w.Soon(time.Second), "n")), context.DeadlineExceeded)
		began := time.Now()
		require.ErrorIs(w, expect.ErrorOf(p.TryLock(w.Ctx, "n")), rwlock.ErrNotAcquired)
		require.Zero(w, time.Since(began))
		w.Release(held)
	}))
}
