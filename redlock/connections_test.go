package redlock_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// A link slower than the node timeout: late answers are heard.
func TestSlowLinkRenewals(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.ProcessAt(35*time.Millisecond, rwlock.WithTTL(time.Second))
		lease := p.Acquire(w.Soon(20*time.Second), "x", rwlock.Write).Granted()
		w.ResetCalls()
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			require.NoError(w, lease.Err())
		}
		st := p.Stats()
		w.Release(lease)
		require.Greater(w, st.Renewed, uint64(20))
		require.LessOrEqual(w, st.RenewFailed, uint64(1), "before the link was known to be slow")
	})
}

// TryLock by users who may not subscribe: nobody waits.
func TestTryWithoutChannelRights(t *testing.T) {
	t.Parallel()
	w := testkit.Start(t, 3)
	for _, server := range w.Servers {
		w.On(server, "ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "resetchannels")
	}
	user := func(o *rueidis.ClientOption) { o.Username, o.Password = "u", "p" }
	locker := w.ProcessOver(testkit.Net{Tuned: true, Change: user})
	failed := 0
	var last error
	for range 60 {
		if err := locker.TryOnce("x"); err != nil {
			failed, last = failed+1, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d of 60 failed: %v", failed, last)
	require.Zero(t, failed)
}

// All connections were replaced, as by a server that ends idle ones: the markers are read again at once.
func TestReconnectCostsNoRefreshInterval(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.ProcessOver(testkit.Net{Way: time.Millisecond, Tuned: true})
		p.Section("warm-up")
		for _, l := range p.Links {
			l.Cut()
		}
		time.Sleep(5 * time.Second)
		start := time.Now()
		p.Section("warm-up")
		require.Less(w, time.Since(start), 200*time.Millisecond)
	})
}

// Only one connection of one kind is replaced: the listener's. Nothing that decides has changed.
func TestListenerRedialFailsNobody(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.ProcessOver(testkit.Net{Way: 10 * time.Millisecond, Tuned: true})
		lease := p.Take("x", rwlock.Write)
		time.AfterFunc(5*time.Millisecond, func() { // as a listener does that redials
			for _, c := range p.Clients {
				go func() {
					d, back := c.Dedicate()
					d.Close()
					back()
				}()
			}
		})
		w.Release(lease)
	})
}

func TestTwoLockersOnSmallPools(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		small := func(o *rueidis.ClientOption) { o.BlockingPoolSize = 1 }
		one := w.Connect(testkit.Net{Tuned: true, Change: small})
		two := &process{W: w, Links: one.Links, Clients: one.Clients}
		for _, p := range []*process{one, two} {
			require.NoError(w, p.Start().TrySection(w.Soon(time.Minute), "x"))
		}
	})
}
