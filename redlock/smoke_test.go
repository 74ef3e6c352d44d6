package redlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var minis []*testredis.Mini
		for range 5 {
			minis = append(minis, testredis.NewMini(t))
		}
		newLocker := func() *rwlock.Locker {
			var clients []rueidis.Client
			for _, m := range minis {
				link := m.NewLink()
				link.Delay(time.Millisecond)
				clients = append(clients, link.Client(t))
			}
			l, err := redlock.New(clients)
			require.NoError(t, err)
			return l
		}
		ctx := context.Background()
		var mu sync.Mutex
		var last fencing.Token
		inside := 0
		var wg sync.WaitGroup
		start := time.Now()
		for c := range 32 {
			l := newLocker()
			defer l.Close()
			wg.Go(func() {
				for i := range 5 {
					lease, err := l.Lock(ctx, "x")
					if err != nil {
						t.Errorf("%d: %v", c, err)
						return
					}
					mu.Lock()
					inside++
					if inside != 1 || lease.Token() <= last {
						t.Errorf("inside %d token %v last %v", inside, lease.Token(), last)
					}
					last = lease.Token()
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					inside--
					mu.Unlock()
					if err := lease.Release(ctx); err != nil {
						t.Errorf("%d/%d release: %v", c, i, err)
					}
				}
			})
		}
		wg.Wait()
		t.Log(time.Since(start), minis[0].AllCalls())
	})
}
