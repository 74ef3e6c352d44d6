package redlock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// A lease that a quorum keeps regains the masters that have lost its hold, one after the other, with the same token.

const regainTTL = 3 * time.Second

// forgetting are ways in which one master loses a hold.
var forgetting = map[string]func(w *world, p *process, master int){
	"emptied": func(w *world, _ *process, master int) { w.Wipe(master) },
	"emptied, and away for a while": func(w *world, _ *process, master int) {
		w.Minis[master].Crash()
		time.Sleep(regainTTL + regainTTL/4)
		w.Minis[master].Recover()
	},
	"away for longer than a TTL": func(w *world, _ *process, master int) {
		w.Minis[master].Stop()
		time.Sleep(regainTTL + regainTTL/4)
		w.Minis[master].Recover()
	},
	"cut off from the holder for longer than a TTL": func(_ *world, p *process, master int) {
		p.CutOff(master)
		time.Sleep(regainTTL + regainTTL/4)
		p.Restore(master)
	},
}

func TestLeaseRegainsEveryMasterInTurn(t *testing.T) {
	for what, forget := range forgetting {
		for _, mode := range testredis.Few([]rwlock.Mode{rwlock.Read}, []rwlock.Mode{rwlock.Write, rwlock.Read}) {
			runInFakeTime(t, mode.String()+" lock, "+what, 3, func(w *world) {
				opts := []rwlock.Option{rwlock.WithTTL(regainTTL), redlock.WithNodeTimeout(500 * time.Millisecond)}
				p, observer := w.Process(opts...), w.Process(opts...)
				lease := p.Take("leader", mode)
				token := lease.Token()
				for range testredis.Few(1, 2) {
					for master := range w.Minis {
						forget(w, p, master)
						time.Sleep(4 * regainTTL)
						require.NoError(w, lease.Err(), "after master %d", master)
						require.Equal(w, token, lease.Token())
						state := expect.NoError(observer.Inspect(w.Ctx, "leader")).In(w)
						require.Len(w, state.Masters[master].Holders, 1, "master %d was not regained", master)
						require.Equal(w, lease.Owner(), state.Masters[master].Holders[0].Owner)
					}
				}
				require.ErrorIs(w, expect.ErrorOf(observer.TryLock(w.Ctx, "leader")), rwlock.ErrNotAcquired)
				w.Release(lease)
				time.Sleep(100 * time.Millisecond)
				observer.RequireFree("leader")
			})
		}
	}
}

// A call that waits for a release of its own process is granted by the quorum that has answered the release first. The
// slowest master is asked too, or the lease would be lost with one of the others.
func TestTheSlowestMasterIsAskedBehindARelease(t *testing.T) {
	for name, takeAgain := range map[string]func(w *world, p *process){
		"single attempt": func(w *world, p *process) {
			require.NoError(w, p.Take("n", rwlock.Write).Release(w.Ctx))
			expect.NoError(p.TryLock(w.Ctx, "n")).In(w)
		},
		"several": func(w *world, p *process) {
			require.NoError(w, expect.NoError(p.LockAll(w.Ctx, rwlock.Writes("n", "m"))).In(w).Release(w.Ctx))
			expect.NoError(p.TryLockAll(w.Ctx, rwlock.Writes("n", "m"))).In(w)
		},
		"RWMutex": func(w *world, p *process) {
			mu := p.RWMutex("n")
			require.NoError(w, mu.Lock(w.Ctx))
			require.NoError(w, mu.Unlock(w.Ctx))
			require.NoError(w, mu.Lock(w.Ctx))
		},
	} {
		runInFakeTime(t, name, 3, func(w *world) {
			p := w.ProcessAt(time.Millisecond, rwlock.WithBackgroundRelease())
			p.WarmUp()
			p.Links[2].Delay(20 * time.Millisecond)
			takeAgain(w, p)
			w.Pass(100 * time.Millisecond)
			for lease := range p.Leases() {
				for i, master := range w.Inspect(lease.Name).Masters {
					require.Len(w, master.Holders, 1, "%s on master %d", lease.Name, i)
				}
			}
		})
	}
}

// Others may be granted a master that has lost the lease, and give it back: a leader with followers lives as long.
func TestALeaderWithFollowersRegainsEveryMaster(t *testing.T) {
	modes := []rwlock.Mode{rwlock.Write, rwlock.Read}
	for _, mode := range testredis.Few(modes[:1], modes) {
		for _, followers := range testredis.Few([]int{1}, []int{1, 3}) {
			for what, forget := range forgetting {
				runInFakeTime(t, fmt.Sprintf("%s lock, %d followers, %s", mode, followers, what), 3, func(w *world) {
					w.TTL = regainTTL
					p := warm(w)
					lease := p.Take("leader", mode)
					var after []*testkit.Pending
					for range followers {
						q := warm(w)
						after = append(after, q.LineUp("leader", rwlock.Write, func(*rwlock.Lease) {}))
					}
					for master := range testredis.Few(3, 6) {
						forget(w, p, master%3)
						w.Pass(4 * regainTTL)
						require.NoError(w, lease.Err(), "after outage %d", master)
						require.True(w, standsEverywhere(w, lease), "after outage %d", master)
					}
					w.Release(lease)
					for _, one := range after {
						<-one.Over
					}
				})
			}
		}
	}
}

// standsEverywhere reports whether every master would renew the lease.
func standsEverywhere(w *world, lease *rwlock.Lease) bool {
	w.Helper()
	return !slices.ContainsFunc(w.Inspect(lease.Name()).Masters, func(m rwlock.MasterState) bool {
		return !slices.ContainsFunc(m.Holders, func(h rwlock.Holder) bool {
			return h.Owner == lease.Owner() && h.Token == lease.Token()
		})
	})
}

// A master that was asked late, or whose clock is ahead, counts a token of its own. It takes that of the lease.
func TestAMasterThatGrantsLateTakesTheTokenOfTheLease(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Hour} {
		for _, mode := range []rwlock.Mode{rwlock.Write, rwlock.Read} {
			runInSkewedTime(t, fmt.Sprint(mode, ", a clock ahead by ", skew), []time.Duration{0, 0, skew}, func(w *world) {
				p := warmed(w.ProcessAt(time.Millisecond))
				p.Links[2].DelayDir(testredis.ToServer, time.Second)
				lease := p.Take("x", mode)
				p.Links[2].Delay(time.Millisecond)
				w.Pass(w.TTL / 2)
				require.True(w, standsEverywhere(w, lease))
				next := p.LineUp("x", rwlock.Write, func(next *rwlock.Lease) { require.Greater(w, next.Token(), lease.Token()) })
				w.Release(lease)
				<-next.Over
			})
		}
	}
}

// Where a master goes on refusing, the log says so once.
func TestAMasterThatStaysAwayFromALeaseIsLogged(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		log := new(testkit.Log)
		p := w.Process(rwlock.WithTTL(regainTTL), log.Option())
		lease := p.Take("x", rwlock.Write)
		other := fmt.Sprintf("%016d%013d%026d%8d0", 1, time.Now().UnixMilli(), 0, time.Hour.Milliseconds())
		w.Minis[1].Miniredis().HSet("fencelock:{x}", "w", other, "d", "w 3000 - - ")
		w.Pass(4 * regainTTL)
		require.NoError(w, lease.Err())
		require.Len(w, log.Records("does not take it back"), 1)
		w.Release(lease)
	})
}

// While a renewal with a shorter TTL may still arrive, a master that takes the lease back is trusted for no longer than
// that TTL either. Here two such renewals arrive after both masters have taken it back: one was away for longer than
// the TTL, the other has lost the lock.
func TestARegainIsNotTrustedWhileAShorterTTLMayArrive(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p, q := w.Process(), warm(w)
		const short, arrival = 3 * time.Second, 33 * time.Second
		normal := func(i int) { p.Links[i].Delay(time.Duration(i+1) * time.Millisecond) } // the order of the answers
		silent := func(i int) { p.Links[i].Delay(time.Hour) }                             // but for what is on its way
		for i := range p.Links {
			normal(i)
		}
		lease := p.Take("x", rwlock.Write)
		begun := time.Now()
		for i := range 2 {
			p.Links[i].DelayDir(testredis.ToServer, arrival-time.Since(begun))
			require.NoError(w, lease.SetTTL(w.Ctx, short)) // by the other two
			normal(i)
			w.Pass(8 * time.Second) // the client has given up, and asks again
		}
		require.NoError(w, lease.SetTTL(w.Ctx, w.TTL))
		silent(0)
		w.Pass(w.TTL + 5*time.Second)
		lost := w.Minis[0].Miniredis()
		before := lost.HGet("fencelock:{x}", "w")
		normal(0)
		w.Eventually("the first master is asked again", func() bool { return lost.HGet("fencelock:{x}", "w") != before })
		silent(0)
		w.Minis[1].Miniredis().Del("fencelock:{x}")
		_ = lease.Renew(w.Ctx) // by the first and the third, so that the second takes it back
		w.Pass(20 * time.Millisecond)
		silent(1)
		_ = lease.Renew(w.Ctx)
		silent(2)
		for lease.Err() == nil {
			next, err := q.TryLock(w.Ctx, "x")
			require.True(w, err != nil || lease.Err() != nil, "both hold it: %v and %v", lease, next)
			w.Pass(100 * time.Millisecond)
		}
	})
}

// A hold is restored only after a quorum has confirmed that it stands. Until then its token may be older than another.
func TestNoMasterIsRegainedWithoutAQuorum(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.Process(rwlock.WithTTL(regainTTL), redlock.WithNodeTimeout(200*time.Millisecond))
		lease := p.Take("leader", rwlock.Write)
		sent := w.Requests(p)
		w.Mini.Miniredis().Del("fencelock:{leader}")
		for _, link := range p.Links[1:] {
			link.Hold(testredis.Both)
		}
		w.Pass(regainTTL / 2) // a renewal has failed
		require.Positive(w, sent.Of(scripts.Renew))
		require.Zero(w, sent.Of(scripts.Regain))
		p.Restore(1, 2)
		w.Pass(regainTTL)
		require.NoError(w, lease.Err())
		require.Equal(w, 1, sent.Of(scripts.Regain))
	})
}

// A master that takes the lease back while a renewal is under way is asked for that renewal too.
func TestARegainedMasterJoinsARenewal(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		const way = 10 * time.Millisecond
		p := w.Process(redlock.WithNodeTimeout(time.Second))
		lease := p.Take("leader", rwlock.Write)
		p.Links[1].Delay(way)
		p.Links[2].Delay(way)
		w.Mini.Miniredis().Del("fencelock:{leader}")
		time.AfterFunc(way, func() { p.Links[0].Delay(10 * way) })
		require.NoError(w, lease.Renew(w.Ctx)) // from the last answer on, the regain is on its way
		p.Links[1].Hold(testredis.Both)
		require.NoError(w, lease.Renew(w.Ctx), "by the first and the third")
		w.Release(lease)
	})
}

// A regain that arrives after the end of the lease, unknown to its suspended process, must not move the deadline.
func TestARegainRevivesNoLease(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		const suspended, timeout = 500 * time.Millisecond, time.Second
		for _, m := range w.Minis {
			m.Skew(0) // from now on their clocks are set by hand
		}
		w.TTL = regainTTL
		clock := testkit.NewWallClock(0)
		p := w.Process(clock.Option(), redlock.WithNodeTimeout(timeout))
		q := warm(w, testkit.NewWallClock(suspended).Option())
		lease := p.Take("x", rwlock.Write)
		lost := func() { w.Minis[2].Miniredis().Del("fencelock:{x}") }
		lost()
		for range 2 { // the second one regains it, so the master knows the script
			require.NoError(w, lease.Renew(w.Ctx))
			w.Pass(timeout / 10)
		}
		require.True(w, standsEverywhere(w, lease))
		lost()
		p.Links[1].DelayDir(testredis.ToClient, timeout*9/10)
		time.AfterFunc(timeout/2, func() { p.Links[2].DelayDir(testredis.ToServer, w.TTL*2/3) })
		require.NoError(w, lease.Renew(w.Ctx)) // from the last answer on, the regain is on its way
		p.Links[1].Blackhole(testredis.Both)

		w.Pass(time.Until(lease.Deadline()) - suspended/2)
		for _, m := range w.Minis {
			m.Skew(suspended)
		}
		clock.Step(suspended)
		other := q.Take("x", rwlock.Write)
		w.Release(other)
		for began := time.Now(); len(w.Inspect("x").Masters[2].Holders) == 0 && time.Since(began) < w.TTL; {
			w.Pass(time.Millisecond)
		}
		w.Pass(time.Millisecond)
		require.Error(w, lease.Err(), "token %v, and %v was granted since", lease.Token(), other.Token())
	})
}
