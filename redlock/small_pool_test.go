package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestTwoLockersOnSmallPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		p := s.link(nil)
		var clients []rueidis.Client
		for _, l := range p.links {
			o := l.Option()
			o.BlockingPoolSize = 1
			c, err := rwlock.Dial("", o)
			require.NoError(t, err)
			t.Cleanup(c.Close)
			clients = append(clients, c)
		}
		one, err := redlock.New(clients, rwlock.WithTTL(10*time.Second))
		require.NoError(t, err)
		defer one.Close()
		two, err := redlock.New(clients, rwlock.WithTTL(10*time.Second))
		require.NoError(t, err)
		defer two.Close()
		lease, err := one.Lock(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lease, err = two.Lock(ctx, "x")
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	})
}
