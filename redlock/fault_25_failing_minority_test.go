package redlock_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// F25: a minority that is down, in whatever way, costs nothing but its own answers.
func TestFault25DownMinorityDoesNotStall(t *testing.T) {
	ways := map[string]func(*testredis.Mini){
		"stopped": (*testredis.Mini).Stop,
		"frozen":  (*testredis.Mini).Freeze,
		"silent": func(m *testredis.Mini) {
			for _, link := range m.Links() {
				link.Blackhole(testredis.Both)
			}
		},
	}
	for way, strike := range ways {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSet(t, 5)
				p := s.peer(time.Millisecond)
				p.warm(t)
				strike(s.minis[1])
				strike(s.minis[3])
				for i := range 200 {
					begun := time.Now()
					lease, err := p.Lock(t.Context(), fmt.Sprint("name-", i%10))
					require.NoError(t, err)
					require.Equal(t, 2*time.Millisecond, time.Since(begun), "acquisition %d", i)
					require.NoError(t, lease.Release(t.Context()))
					time.Sleep(30 * time.Millisecond)
				}
			})
		})
	}
}

// F25: grants that come too late are no lease, though a quorum has granted: the validity is checked last.
func TestFault25ValidityIsCheckedAfterTheQuorum(t *testing.T) {
	const ttl = 200 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		p := s.peer(0, rwlock.WithTTL(ttl), redlock.WithNodeTimeout(ttl-time.Millisecond), redlock.WithDrift(0.02))
		p.warm(t)
		var late []<-chan struct{}
		for _, link := range p.links[:3] {
			// Before a batch is given up, and after the trust in its grant has ended.
			late = append(late, link.DelayNextReply(testredis.Named("EVALSHA"), ttl-2*time.Millisecond))
		}
		begun := time.Now()
		lease, err := p.Lock(t.Context(), "x")
		require.NoError(t, err)
		for _, struck := range late {
			<-struck
		}
		require.NoError(t, lease.Err())
		require.Greater(t, lease.Deadline().Sub(begun), ttl+ttl/2, "it stands on a second round of grants")
		time.Sleep(10 * time.Millisecond)
		state, err := p.Inspect(t.Context(), "x")
		require.NoError(t, err)
		for _, m := range state.Masters {
			require.Len(t, m.Holders, 1, "the first round has been given back to master %d", m.Index)
		}
		require.NoError(t, lease.Release(t.Context()))
	})
}

// F25: what a minority has granted is given back at once, and what it grants late as well.
func TestFault25MinorityGrantsAreNotLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		p, observer := s.peer(time.Millisecond), s.peer(time.Millisecond)
		p.warm(t)
		observer.warm(t)
		for _, link := range p.links[2:4] {
			link.Refuse()
			link.Cut()
		}
		p.links[4].Hold(testredis.ToServer)
		_, err := p.TryLock(t.Context(), "x")
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		require.True(t, rwlock.Indeterminate(err), "one request is on its way")
		time.Sleep(10 * time.Millisecond)
		requireFree(t, observer, "x")

		p.links[4].Restore()
		time.Sleep(100 * time.Millisecond)
		requireFree(t, observer, "x")
	})
}

// requireFree fails unless every master shows the lock without holders and waiters.
func requireFree(t *testing.T, observer *peer, name string) {
	t.Helper()
	state, err := observer.Inspect(t.Context(), name)
	require.NoError(t, err)
	for _, m := range state.Masters {
		require.NoError(t, m.Err)
		require.Empty(t, m.Holders, "master %d", m.Index)
		require.Empty(t, m.Waiters, "master %d", m.Index)
	}
}

// F25: an emptied master does not vote while a lease that it forgot may live.
func TestFault25EmptiedMasterAbstains(t *testing.T) {
	const ttl = 4 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		holder, other := s.peer(time.Millisecond, rwlock.WithTTL(ttl)), s.peer(time.Millisecond, rwlock.WithTTL(ttl))
		holder.warm(t)
		other.warm(t)
		for _, link := range holder.links[3:] { // the holder has 0, 1 and 2 alone
			link.Refuse()
			link.Cut()
		}
		b := newChecker(t, "emptied")
		at := b.begin("x")
		lease, err := holder.Lock(t.Context(), "x")
		require.NoError(t, err)
		b.acquired(at, lease)

		s.minis[0].Crash()
		s.minis[0].Recover()
		emptied := time.Now()
		_, err = other.TryLock(t.Context(), "x")
		require.Error(t, err, "0, 3 and 4 know of no holder")

		at = b.begin("x")
		next, err := other.Lock(t.Context(), "x")
		require.NoError(t, err)
		b.acquired(at, next)
		require.ErrorIs(t, lease.Err(), rwlock.ErrLost, "1 and 2 are no quorum for it")
		require.Less(t, time.Since(emptied), 2*ttl)
		require.NoError(t, next.Release(t.Context()))

		s.minis[3].Stop()
		s.minis[4].Stop()
		lease, err = other.Lock(soon(t, ttl+time.Second), "x")
		require.NoError(t, err, "the emptied master votes again")
		require.NoError(t, lease.Release(t.Context()))
	})
}

// F25: a master that comes back from an old save abstains as well; see rolledBack for the marker.
func TestFault25RolledBackMasterAbstains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		p := s.peer(time.Millisecond)
		p.warm(t)
		old := s.minis[0].Snapshot()
		time.Sleep(time.Minute)
		s.minis[0].Crash()
		s.minis[0].Rollback(old)
		s.minis[0].Miniredis().Del("fencelock:master")
		s.minis[0].Recover()
		s.minis[1].Stop()

		begun := time.Now()
		lease, err := p.Lock(t.Context(), "x")
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begun), 10*time.Second, "the default TTL")
		require.NoError(t, lease.Release(t.Context()))
	})
}

// F25: a new set of masters serves at once, also where many processes meet it in one moment.
func TestFault25FirstStartDoesNotWait(t *testing.T) {
	const starters = 16
	for _, spread := range []time.Duration{0, 3 * time.Millisecond} {
		t.Run(fmt.Sprint("within ", spread), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSet(t, 5)
				peers := s.crowd(starters, 3)
				begun := time.Now()
				var work sync.WaitGroup
				for i, p := range peers {
					work.Go(func() {
						time.Sleep(time.Duration(i) * spread / starters)
						lease, err := p.Lock(soon(t, 2*time.Second), fmt.Sprint("own-", i))
						if err != nil {
							t.Errorf("process %d: %v", i, err)
							return
						}
						if took := time.Since(begun); took > 500*time.Millisecond {
							t.Errorf("process %d had to wait for %v", i, took)
						}
						if err := lease.Release(t.Context()); err != nil {
							t.Errorf("process %d: release: %v", i, err)
						}
					})
				}
				work.Wait()
				for i, m := range s.minis {
					require.Equal(t, "0", m.Miniredis().HGet("fencelock:master", "until"), "master %d votes", i)
				}
			})
		})
	}
}
