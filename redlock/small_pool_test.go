package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

func TestTwoLockersOnSmallPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newSet(t, 3).dial(0, func(o *rueidis.ClientOption) { o.BlockingPoolSize = 1 })
		two := &peer{links: one.links, clients: one.clients}
		for _, p := range []*peer{one, two} {
			p.start(t, rwlock.WithTTL(10*time.Second))
			lease, err := p.Lock(soon(t, time.Minute), "x")
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}
