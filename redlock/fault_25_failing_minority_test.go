package redlock_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/internal/test/testredis"
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
	eachInFakeTime(t, 5, ways, func(w *world, strike func(*testredis.Mini)) {
		p := warm(w)
		strike(w.Minis[1])
		strike(w.Minis[3])
		for i := range 40 {
			begun := time.Now()
			lease := p.Take(fmt.Sprint("name-", i%10), rwlock.Write)
			require.Equal(w, 2*time.Millisecond, time.Since(begun), "acquisition %d", i)
			w.Release(lease)
			time.Sleep(30 * time.Millisecond)
		}
	})
}

// F25: grants that come too late are no lease, though a quorum has granted: the validity is checked last.
func TestFault25ValidityIsCheckedAfterTheQuorum(t *testing.T) {
	const ttl = 200 * time.Millisecond
	inFakeTime(t, 5, func(w *world) {
		w.TTL = ttl
		p := warmed(w.ProcessAt(0, redlock.WithNodeTimeout(ttl-time.Millisecond), redlock.WithDrift(0.02)))
		var late []<-chan struct{}
		for _, link := range p.Links[:3] {
			// Before a batch is given up, and after the trust in its grant has ended.
			late = append(late, link.DelayNextReply(testredis.Named("EVALSHA"), ttl-2*time.Millisecond))
		}
		begun := time.Now()
		lease := p.Take("x", rwlock.Write)
		for _, struck := range late {
			<-struck
		}
		require.NoError(w, lease.Err())
		require.Greater(w, lease.Deadline().Sub(begun), ttl+ttl/2, "it stands on a second round of grants")
		time.Sleep(10 * time.Millisecond)
		state := expect.NoError(p.Inspect(w.Ctx, "x")).In(w)
		for _, m := range state.Masters {
			require.Len(w, m.Holders, 1, "the first round has been given back to master %d", m.Index)
		}
		w.Release(lease)
	})
}

// F25: what a minority has granted is given back at once, and what it grants late as well.
func TestFault25MinorityGrantsAreNotLeftBehind(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		p, observer := warm(w), warm(w)
		p.CutOff(2, 3)
		p.Links[4].Hold(testredis.ToServer)
		_, err := p.TryLock(w.Ctx, "x")
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.True(w, rwlock.Indeterminate(err), "one request is on its way")
		time.Sleep(10 * time.Millisecond)
		observer.RequireFree("x")

		p.Links[4].Restore()
		time.Sleep(100 * time.Millisecond)
		observer.RequireFree("x")
	})
}

// F25: an emptied master does not vote while a lease that it forgot may live.
func TestFault25EmptiedMasterAbstains(t *testing.T) {
	const ttl = 4 * time.Second
	inFakeTime(t, 5, func(w *world) {
		holder, other := warm(w, rwlock.WithTTL(ttl)), warm(w, rwlock.WithTTL(ttl))
		holder.CutOff(3, 4)
		b := judge.For(w, "emptied")
		lease := judged(b, holder, "x")

		w.Wipe(0)
		emptied := time.Now()
		require.Error(w, expect.ErrorOf(other.TryLock(w.Ctx, "x")), "0, 3 and 4 know of no holder")

		next := judged(b, other, "x")
		require.ErrorIs(w, lease.Err(), rwlock.ErrLost, "1 and 2 are no quorum for it")
		require.Less(w, time.Since(emptied), 2*ttl)
		w.Release(next)

		w.Minis[3].Stop()
		w.Minis[4].Stop()
		lease = expect.NoError(other.Lock(w.Soon(ttl+time.Second), "x")).In(w, "the emptied master votes again")
		w.Release(lease)
	})
}

// F25: it abstains for as long as any lease that it has forgotten may live. Here that is the whole TTL.
func TestFault25EmptiedMasterAbstainsForTheLongestTTL(t *testing.T) {
	const ttl = 6 * time.Second
	inFakeTime(t, 5, func(w *world) {
		holder, other := warm(w, rwlock.WithTTL(ttl)), warm(w, rwlock.WithTTL(ttl))
		holder.CutOff(3, 4)
		b := judge.For(w, "emptied")
		lease := judged(b, holder, "x")
		holder.CutOff(0, 1, 2)

		w.Wipe(0)
		next := judged(b, other, "x")
		require.ErrorIs(w, lease.Err(), rwlock.ErrLost)
		w.Release(next)
	})
}

// F25: the masters of a new set abstain once, for the longest TTL, also where many processes meet them at once.
func TestFault25FirstStartWaitsOnce(t *testing.T) {
	const starters = 16
	spreads := []time.Duration{3 * time.Millisecond, 0}
	for _, spread := range testredis.Few(spreads[:1], spreads) {
		runInFakeTime(t, fmt.Sprint("within ", spread), 5, func(w *world) {
			w.Fresh = true
			peers := crowd(w, starters, 3)
			begun := time.Now()
			var work sync.WaitGroup
			for i, p := range peers {
				work.Go(func() {
					time.Sleep(time.Duration(i) * spread / starters)
					_, err := p.TryLock(w.Ctx, "first")
					no, ok := errors.AsType[*rwlock.AbstainError](err)
					if !ok || no.For < w.TTL-100*time.Millisecond || no.For > w.TTL {
						w.Errorf("process %d: %v", i, err)
					}
					lease, err := p.Lock(w.Soon(2*w.TTL), fmt.Sprint("own-", i))
					if err != nil {
						w.Errorf("process %d: %v", i, err)
						return
					}
					if took := time.Since(begun); took < w.TTL || took > w.TTL+500*time.Millisecond {
						w.Errorf("process %d had to wait for %v", i, took)
					}
					if err := lease.Release(w.Ctx); err != nil {
						w.Errorf("process %d: release: %v", i, err)
					}
				})
			}
			work.Wait()
		})
	}
}
