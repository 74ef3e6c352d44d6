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

// Only one connection of one kind is replaced: the listener's. Nothing that decides has changed.
func TestListenerRedialFailsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		p := s.link(nil)
		var clients []rueidis.Client
		for _, l := range p.links {
			l.Delay(10 * time.Millisecond)
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
		time.AfterFunc(5*time.Millisecond, func() { // as a listener does that redials
			for _, c := range clients {
				go func() {
					d, back := c.Dedicate()
					d.Close()
					back()
				}()
			}
		})
		require.NoError(t, lease.Release(t.Context()))
	})
}
