package rwlock_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A release that is refused for good is told as that, and nothing goes on. Another one goes on in the background.
func TestAReleaseThatIsRefusedForGoodIsNotPending(t *testing.T) {
	for refusal, forGood := range map[string]bool{
		"NOPERM this user has no permissions to run the 'evalsha' command": true,
		"READONLY You can't write against a read only replica.":            true,
		"LOADING Redis is loading the dataset in memory":                   false,
	} {
		t.Run(refusal, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				var j testkit.Log
				p := w.Process(j.Option())
				lease := p.Take("n", rwlock.Write)
				w.Mini.Miniredis().SetError(refusal)
				err := lease.Release(w.Ctx)
				w.Mini.Miniredis().SetError("")
				require.ErrorContains(w, err, refusal)
				require.NoError(w, p.Close()) // the log is complete
				text := j.String()
				requireTold(w.T, err, text, forGood)
			})
		})
	}
}

// requireTold compares what is told of a release that is not confirmed with whether it goes on.
func requireTold(t *testing.T, err error, log string, forGood bool) {
	t.Helper()
	require.ErrorIs(t, err, rwlock.ErrNoQuorum)
	require.ErrorContains(t, err, `lock "n"`)
	require.Equal(t, !forGood, rwlock.Indeterminate(err))
	for _, text := range []string{err.Error(), log} {
		if forGood {
			require.Contains(t, text, "refused")
			require.Contains(t, text, "ends with its TTL")
			require.NotContains(t, text, "in the background")
		} else {
			require.Contains(t, text, "in the background")
			require.NotContains(t, text, "ends with its TTL")
		}
	}
}

// refusing makes a server refuse scripts while the switch is on, and counts what it refuses.
func refusing(mini *testredis.Mini, on *atomic.Bool) (refused *atomic.Int64) {
	refused = new(atomic.Int64)
	mini.Miniredis().Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if !strings.HasPrefix(cmd, "EVAL") || !on.Load() {
			return false
		}
		refused.Add(1)
		c.WriteError("LOADING Redis is loading the dataset in memory")
		return true
	})
	return refused
}

// Whoever waits for a server that refuses gets in soon after that; of a crowd a single one asks.
func TestWaitersOfAServerThatRefuses(t *testing.T) {
	for name, queued := range map[string]bool{"who asks": false, "who is queued": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const crowd, outage, soon = 100, 10500 * time.Millisecond, 50 * time.Millisecond
				mini := testredis.NewMini(t)
				var on atomic.Bool
				refused := refusing(mini, &on)
				locker := testkit.New(t, mini.Client(t), rwlock.WithTTL(time.Minute))
				holder, err := rwlock.New(mini.Client(t), rwlock.WithTTL(time.Second))
				require.NoError(t, err)
				held, err := holder.Lock(t.Context(), "n", rwlock.WithoutRenewal())
				require.NoError(t, err)

				on.Store(!queued)
				var all sync.WaitGroup
				var first atomic.Int64
				began := time.Now()
				for range crowd {
					all.Go(func() {
						lease, err := locker.Lock(t.Context(), "n")
						require.NoError(t, err)
						first.CompareAndSwap(0, int64(time.Since(began)))
						require.NoError(t, lease.Release(t.Context()))
					})
				}
				synctest.Wait()
				on.Store(true)
				<-held.Done()
				require.NoError(t, holder.Close())
				time.Sleep(outage - time.Since(began))
				require.Less(t, refused.Load(), int64(3000), "of the crowd")
				on.Store(false)
				all.Wait()
				require.Less(t, time.Duration(first.Load())-outage, soon)
			})
		})
	}
}

// Releases that wait for a master expire while it is away. Those that come after its return are sent as ever.
func TestBackgroundReleasesGoOnAfterAnOutage(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.TTL = time.Second
		p, q := w.Process(), w.Process()
		lease := p.Take("n", rwlock.Write)
		p.Link.Refuse()
		p.Link.Cut()
		require.True(w, rwlock.Indeterminate(lease.Release(w.Ctx)))
		w.Pass(10 * w.TTL)
		p.Link.Restore()
		w.Pass(5 * w.TTL)
		w.Release(p.Take("other", rwlock.Write))

		q.Take("n", rwlock.Write)
		_, err := p.Lock(w.Soon(100*time.Millisecond), "n")
		require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		w.Pass(50 * time.Millisecond)
		require.Empty(w, w.Inspect("n").Waiters, "who gave up is out of the queue")
		start := time.Now()
		require.NoError(w, p.Close())
		require.Less(w, time.Since(start), w.TTL/2)
	})
}

// What short attempts leave behind lives as long as their requests can, not as long as their TTL.
func TestTombstonesDoNotPileUp(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const attempts = 500
		w.TTL = time.Hour
		w.Process().Take("n", rwlock.Write)
		p := w.Process()
		p.WarmUp()
		size := func() int { return len(w.Mini.Miniredis().Dump()) }
		before := size()
		p.Link.DelayDir(testredis.ToClient, 6*time.Millisecond)
		for range attempts {
			ctx, cancel := context.WithTimeout(w.Ctx, 3*time.Millisecond)
			_, err := p.TryLock(ctx, "n")
			require.Error(w, err)
			cancel()
		}
		p.Link.Delay(0)
		w.Pass(time.Minute)
		for range attempts / 10 { // whoever comes clears up
			_, err := p.TryLock(w.Ctx, "n")
			require.ErrorIs(w, err, rwlock.ErrNotAcquired)
		}
		require.Less(w, size()-before, 20*100, "bytes left of %d attempts", attempts)
	})
}

// A dial has a context below that of the release, which runs out when the release is over, or in that moment.
func TestTheTimeOfADialRunsOutAfterItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		option := link.Option()
		dial, dials := option.DialCtxFn, 0
		option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			dials++
			_, cancel := context.WithTimeout(ctx, time.Second)
			t.Cleanup(cancel)
			return dial(ctx, addr, d, c)
		}
		locker := testkit.Dial(t, "", option)
		for range 3 {
			lease, err := locker.TryLock(t.Context(), "n")
			require.NoError(t, err)
			time.Sleep(200 * time.Millisecond) // the connection has not answered of late
			before := dials
			link.Cut()
			synctest.Wait()
			require.NoError(t, lease.Release(t.Context()))
			require.Greater(t, dials, before, "the release dials")
			time.Sleep(2 * time.Second)
		}
	})
}
