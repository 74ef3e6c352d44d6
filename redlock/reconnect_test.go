package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// All connections were replaced, as by a server that ends idle ones: the markers are read again at once.
func TestReconnectCostsNoRefreshInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		p := s.link(nil)
		var clients []rueidis.Client
		for _, l := range p.links {
			l.Delay(time.Millisecond)
			c, err := rwlock.Dial("", l.Option())
			require.NoError(t, err)
			t.Cleanup(c.Close)
			clients = append(clients, c)
		}
		locker, err := redlock.New(clients, rwlock.WithTTL(10*time.Second))
		require.NoError(t, err)
		defer locker.Close()
		lease, err := locker.Lock(t.Context(), "x")
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		for _, l := range p.links {
			l.Cut()
		}
		time.Sleep(5 * time.Second)
		start := time.Now()
		lease, err = locker.Lock(t.Context(), "y")
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		require.Less(t, time.Since(start), 200*time.Millisecond)
	})
}
