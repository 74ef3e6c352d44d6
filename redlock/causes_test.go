package redlock_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// What keeps a master from voting is told apart by type: it did not answer in time, or it abstains.
func TestCausesOfMissingVotesHaveTypes(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		const ttl = 10 * time.Second
		var log testkit.Log
		p := warm(w, rwlock.WithTTL(ttl), log.Option())
		time.Sleep(ttl / 10) // all masters have answered the release: one that is sent again finds the empty master
		w.Wipe(0)
		w.Pass(ttl / 10)
		require.NotContains(w, log.String(), "in quarantine")
		for range 3 {
			p.Section("warm-up") // it is found to be empty, and looked at again
			time.Sleep(ttl / 20)
		}
		synctest.Wait()
		require.Equal(w, 1, strings.Count(log.String(), "in quarantine\" master=mini-0:6379"), log.String())
		p.Links[1].Hold(testredis.Both)
		_, err := p.TryLock(w.Ctx, "x")
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.True(w, rwlock.Indeterminate(err))
		abstains := testkit.As[*rwlock.AbstainError](w, err)
		require.Positive(w, abstains.For)
		require.LessOrEqual(w, abstains.For, ttl)
		late := testkit.As[*rwlock.NoReplyError](w, err)
		require.Positive(w, late.After)
		require.LessOrEqual(w, late.After, time.Second)
		p.Restore(1)
	})
}

// A loss names each master that did not renew the lease, and its cause; so does a release that is not confirmed.
func TestLossAndReleaseNameEveryMasterThatFailed(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		var log testkit.Log
		p := warm(w, rwlock.WithTTL(10*time.Second), log.Option())
		lease := p.Take("x", rwlock.Write)
		other := p.Take("y", rwlock.Write)
		w.Minis[0].Stop()
		p.Links[1].Hold(testredis.Both)
		requireEach := func(causes []error, in string) {
			require.Len(w, causes, 2)
			for i, cause := range causes {
				node := testkit.As[*rwlock.NodeError](w, cause)
				require.Equal(w, i, node.Index)
				require.NotEmpty(w, node.Addr)
				require.Contains(w, in, node.Error())
			}
		}
		unconfirmed := testkit.As[*rwlock.QuorumError](w, other.Release(w.Ctx))
		synctest.Wait()
		require.Contains(w, log.String(), "release not confirmed")
		requireEach([]error{&unconfirmed.Nodes[0], &unconfirmed.Nodes[1]}, log.String())
		<-lease.Done()
		lost := testkit.As[*rwlock.LostError](w, lease.Err())
		require.Equal(w, rwlock.ReasonNotRenewed, lost.Reason)
		several, ok := lost.Err.(interface{ Unwrap() []error })
		require.True(w, ok, "%v", lost.Err)
		requireEach(several.Unwrap(), lost.Error())
		w.Minis[0].Recover()
		p.Restore(1)
	})
}

// A minority that does not renew costs no lease, so nothing but the log tells of it.
func TestAMinorityThatDoesNotRenewIsLogged(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		var log testkit.Log
		p := warm(w, rwlock.WithTTL(3*time.Second), log.Option())
		for _, name := range []string{"x", "y"} {
			lease := p.Take(name, rwlock.Write)
			defer func() { require.NoError(w, lease.Release(w.Ctx)) }()
		}
		w.Pass(10 * time.Second)
		require.Empty(w, log.String())
		w.Minis[2].Stop()
		w.Pass(10 * time.Second)
		require.Regexp(w, `does not renew leases.* master=mini-2:6379 leases=2 `, log.String())
		require.Less(w, strings.Count(log.String(), "does not renew"), 6, "at growing intervals")
		w.Minis[2].Recover()
		w.Pass(10 * time.Second)
		log.Reset()
		w.Pass(time.Minute)
		require.Empty(w, log.String())
	})
}

// A master that was down when the lock was taken has its own cause.
func TestALossNamesTheMasterThatWasDown(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := warm(w, rwlock.WithTTL(10*time.Second))
		w.Minis[1].Stop()
		lease := p.Take("x", rwlock.Write)
		p.Links[0].Hold(testredis.Both)
		<-lease.Done()
		require.ErrorContains(w, lease.Err(), "; mini-1:6379: ")
		require.NotContains(w, lease.Err().Error(), "does not have the hold")
		p.Restore(0)
		w.Minis[1].Recover()
	})
}

// A master that has forgotten the hold is part of the reason for a loss, beside the one that did not answer.
func TestALossNamesTheMasterThatHasForgotten(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := warm(w, rwlock.WithTTL(10*time.Second))
		lease := p.Take("x", rwlock.Write)
		w.Minis[1].Crash()
		time.Sleep(12 * time.Second) // renewed by the others
		w.Minis[1].Recover()
		time.Sleep(5 * time.Second) // it is in its quarantine, and takes no lease back that it had so long ago
		require.NoError(w, lease.Err())
		p.Links[0].Hold(testredis.Both)
		<-lease.Done()
		require.Regexp(w, `mini-0:6379: .*; mini-1:6379: (does not have the hold|in quarantine .*)$`, lease.Err().Error())
		p.Restore(0)
	})
}

// A renewal that too few masters have confirmed says how many did, and why each of the others did not.
func TestARenewalWithoutAQuorumSaysWhoConfirmed(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := warm(w, rwlock.WithTTL(10*time.Second))
		lease := p.Take("x", rwlock.Write)
		time.Sleep(10 * time.Millisecond) // all three have granted it
		p.Links[0].Hold(testredis.Both)
		require.NoError(w, lease.Renew(w.Ctx))
		p.Links[2].Hold(testredis.Both)
		err := lease.Renew(w.Ctx)
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		failed := testkit.As[*rwlock.QuorumError](w, err)
		require.Equal(w, []any{"x", 2, 1}, []any{failed.Name, failed.Need, failed.Got})
		require.Len(w, failed.Nodes, 2)
		for i, master := range []int{0, 2} {
			require.Equal(w, master, failed.Nodes[i].Index)
			require.ErrorAs(w, &failed.Nodes[i], new(*rwlock.NoReplyError))
		}
		require.NoError(w, lease.Err())
		p.Links[0].Restore()
		p.Links[2].Restore()
		require.NoError(w, lease.Renew(w.Ctx))
		w.Release(lease)
	})
}

// A release goes on in the background as long as a quorum can confirm it.
func TestAReleaseIsRefusedWhereNoQuorumCanConfirm(t *testing.T) {
	for refusing, forGood := range map[int]bool{1: false, 2: true} {
		inFakeTime(t, 3, func(w *world) {
			p := warm(w, rwlock.WithTTL(10*time.Second))
			lease := p.Take("x", rwlock.Write)
			time.Sleep(10 * time.Millisecond) // all three have granted it
			for _, mini := range w.Minis[:refusing] {
				mini.Miniredis().SetError("NOPERM this user has no permissions to run the 'evalsha' command")
			}
			p.Links[2].Hold(testredis.Both)
			err := lease.Release(w.Ctx)
			require.ErrorIs(w, err, rwlock.ErrNoQuorum)
			require.Equal(w, !forGood, rwlock.Indeterminate(err), "%v", err)
			p.Links[2].Restore()
			require.NoError(w, p.Close())
		})
	}
}

// Attempts counts the requests to all masters, whichever of them is down.
func TestAttemptsCountAllMasters(t *testing.T) {
	for down := range 3 {
		inFakeTime(t, 3, func(w *world) {
			p, q := warm(w), warm(w)
			held := p.Take("n", rwlock.Write)
			w.Minis[down].Stop()
			for range 6 {
				_, err := q.TryLock(w.Soon(time.Second), "n")
				contended := testkit.As[*rwlock.AcquireError](w, err)
				require.GreaterOrEqual(w, contended.Attempts, 2, "two masters said who holds it; master %d is down", down)
				require.LessOrEqual(w, contended.Attempts, 3)
				time.Sleep(20 * time.Millisecond)
			}
			w.Minis[down].Recover()
			w.Release(held)
		})
	}
}

// A quorum of masters with a counter beyond all tokens is a conflict; a minority is outvoted.
func TestACounterPastAllTokensOnAQuorum(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p, q := w.Process(), w.Process()
		spoil := func(counter string, masters ...int) {
			for _, i := range masters {
				w.Minis[i].Miniredis().Del("fencelock:{x}")
				w.Minis[i].Miniredis().HSet("fencelock:{x}", "w", testkit.CounterIn("", counter))
			}
		}
		for _, counter := range []string{"9007199254740991", "9223372036854775807", "99999999999999999999999"} {
			for _, take := range []func(context.Context, string, ...rwlock.LockOption) (*rwlock.Lease, error){
				p.Lock, p.RLock, p.TryLock, p.TryRLock,
			} {
				spoil(counter, 0, 1)
				began := time.Now()
				require.ErrorIs(w, expect.ErrorOf(take(w.Ctx, "x")), rwlock.ErrConflict, counter)
				require.Less(w, time.Since(began), time.Second, "it does not wait")
				w.Pass(time.Second)

				spoil("1", 0, 1, 2)
				spoil(counter, 0)
				w.Release(expect.NoError(take(w.Ctx, "x")).In(w, counter))
			}
		}
		spoil("1", 0, 1, 2)
		held := p.Take("x", rwlock.Write)
		waiting := q.Queue("x", rwlock.Write, rwlock.WithMaxWait(testkit.Patience))
		for i := range 2 {
			mini := w.Minis[i].Miniredis()
			mini.HSet("fencelock:{x}", "w", testkit.CounterIn(mini.HGet("fencelock:{x}", "w"), "9007199254740991"))
		}
		_ = held.Release(w.Ctx)
		require.ErrorIs(w, waiting.Failed(), rwlock.ErrConflict)
	})
}
