package redlock_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// lockerWithDelays returns a locker over links of its own. It is closed when the test ends.
func lockerWithDelays(t *testing.T, minis []*testredis.Mini, delay func() time.Duration) *rwlock.Locker {
	clients := make([]rueidis.Client, len(minis))
	for i, mini := range minis {
		link := mini.NewLink()
		link.DelayFunc(testredis.Both, delay)
		clients[i] = link.Client(t)
	}
	locker, err := redlock.New(clients, rwlock.WithTTL(2*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { _ = locker.Close() })
	return locker
}

// Over links whose delays vary, messages and answers overtake each other all the time. None of that may leave a
// contender waiting for its refresh, which is the net under the messages and comes every 667 ms here.
func TestSplitVotesDoNotWaitForTheRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const contenders, names, span = 16, 4, 2 * time.Second
		jitter := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		delay := func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			return time.Millisecond + time.Duration(jitter.Int64N(int64(2*time.Millisecond)))
		}
		minis := []*testredis.Mini{testredis.NewMini(t), testredis.NewMini(t), testredis.NewMini(t)}
		start, acquired, longest := time.Now(), 0, time.Duration(0)
		var work sync.WaitGroup
		for c := range contenders {
			locker := lockerWithDelays(t, minis, delay)
			work.Go(func() {
				draw := rand.New(rand.NewPCG(3, uint64(c)))
				for time.Since(start) < span {
					take := locker.Lock
					if draw.IntN(2) == 0 {
						take = locker.RLock
					}
					asked := time.Now()
					lease, err := take(t.Context(), string(rune('a'+draw.IntN(names))))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					acquired++
					longest = max(longest, time.Since(asked))
					mu.Unlock()
					time.Sleep(time.Millisecond)
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		work.Wait()
		t.Logf("%d acquisitions, longest wait %v", acquired, longest)
		require.Less(t, longest, 300*time.Millisecond)
		require.Greater(t, acquired, 800)
	})
}
