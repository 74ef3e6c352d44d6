package rwlock_test

import (
	"context"
	"fmt"
	"maps"
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
	"github.com/seed74116694/fencelock/scripts"
)

// overtakeReleases holds up each release, so that a request that does not wait for its answer overtakes it.
func overtakeReleases(p *process, d time.Duration) {
	release := testkit.Running("release")
	p.Link.OnCommand(func(cmd []string) {
		if release(cmd) {
			time.Sleep(d)
		}
	})
}

// refuseReleasesOf has the server refuse each release of this lock, so that others wait for a probe.
func refuseReleasesOf(p *process, name string) {
	release := testkit.Running("release")
	p.Link.Deny(func(cmd []string) string {
		if release(cmd) && strings.Contains(cmd[3], name) {
			return "BUSY not now"
		}
		return ""
	})
	struck := p.Link.DelayNextReply(testkit.Running("acquire"), 100*time.Millisecond)
	_, err := p.Lock(p.W.Soon(50*time.Millisecond), name)
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

// A single attempt does not wait for its process's releases one after the other: two round trips would be too long.
func TestASingleAttemptWaitsForItsReleasesTogether(t *testing.T) {
	for first, name := range map[string]string{"the same lock": "n", "another lock": "other"} {
		t.Run(first, func(t *testing.T) {
			testkit.InFakeTime(t, 3, func(w *world) {
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
				lease, err := p.TryLock(w.Ctx, "n")
				require.NoError(w, err)
				w.Release(lease)
			})
		})
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
		w.UntilWaiting("n", perRefresh)
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
		_, err := p.Lock(w.Soon(time.Second), "n")
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
		held, err := holder.Lock(t.Context(), "n")
		require.NoError(t, err)
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

// lockerOf is closed when the test ends.
func lockerOf(t testing.TB, client rueidis.Client, opts ...rwlock.Option) *rwlock.Locker {
	locker, err := rwlock.New(client, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
	return locker
}

// foundLate are ways in which a process learns of its grant by asking again.
var foundLate = map[string]func(w *world, p *process) *pending{
	"the answer was lost": func(w *world, p *process) *pending {
		p.Link.DropNextReply(testkit.Running(scripts.Acquire))
		return p.Acquire(w.Ctx, "n", rwlock.Write, rwlock.WithoutRenewal())
	},
	"the answer was lost that it is queued": func(w *world, p *process) *pending {
		held := w.Process().Take("n", rwlock.Write)
		struck := p.Link.DropNextReply(testkit.Running(scripts.Acquire))
		waiter := p.Acquire(w.Ctx, "n", rwlock.Write, rwlock.WithoutRenewal())
		<-struck
		p.Link.Refuse()
		p.Link.Cut()
		w.Settle()
		w.Release(held)
		w.Pass(w.Claim() / 6)
		p.Link.Restore()
		return waiter
	},
	"the message was lost": func(w *world, p *process) *pending {
		held := w.Process().Take("n", rwlock.Write)
		p.Link.DropPushes(func(push []string) bool { return push[0] == "message" })
		waiter := p.Queue("n", rwlock.Write, rwlock.WithoutRenewal())
		w.Release(held)
		return waiter
	},
	"the link was down": func(w *world, p *process) *pending {
		held := w.Process().Take("n", rwlock.Write)
		waiter := p.Queue("n", rwlock.Write, rwlock.WithoutRenewal())
		p.Link.Refuse()
		p.Link.Cut()
		w.Settle()
		w.Release(held)
		w.Pass(w.Claim() / 2)
		p.Link.Restore()
		return waiter
	},
}

// A lease that is not to be renewed lasts for its TTL, also where the process asked again to learn that it has it.
func TestGrantFoundByAskingAgainLastsTheTTL(t *testing.T) {
	for how, find := range foundLate {
		t.Run(how, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.Process()
				p.WarmUp()
				waiter := find(w, p)
				lease := waiter.Granted()
				require.NoError(w, lease.Err())
				w.UntilOver(lease)
				require.Greater(w, time.Since(waiter.At), w.TTL*8/10)
				require.LessOrEqual(w, time.Since(waiter.At), w.TTL+w.Claim())
			})
		})
	}
}

// A server back from an old save grants a hold again, with another token: what renews there is not the owner's lease.
func TestRenewalOfAnotherTokenIsALoss(t *testing.T) {
	inFakeTime(t, func(w *world) {
		holder, p, other := w.Process(), w.Process(), w.Process()
		held := holder.Take("n", rwlock.Write, rwlock.WithoutRenewal())
		w.Pass(8 * time.Second)
		waiter := p.Queue("n", rwlock.Write)
		w.Pass(time.Until(held.Deadline()) - 500*time.Millisecond)
		old := w.Mini.Snapshot()
		w.Release(held)
		lease := waiter.Granted()
		first := lease.Token()
		w.Pass(100 * time.Millisecond)
		w.Mini.Rollback(old)
		w.Pass(600 * time.Millisecond) // the old holder's time is over there, and no renewal has come yet
		p.Link.DropPushes(func(push []string) bool { return push[0] == "message" })
		_, err := other.TryLock(w.Ctx, "n")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		state := w.Inspect("n")
		require.Len(w, state.Holders, 1)
		require.Equal(w, lease.Owner(), state.Holders[0].Owner)
		require.Greater(w, state.Token, first, "granted once more")

		w.Pass(2 * w.TTL)
		require.Equal(w, first, lease.Token())
		require.ErrorIs(w, lease.Err(), rwlock.ErrLost, "renewed with a token that is not its own")
		w.Release(other.Acquire(w.Ctx, "n", rwlock.Write).Granted())
	})
}
