package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// Only one connection of one kind is replaced: the listener's. Nothing that decides has changed.
func TestListenerRedialFailsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSet(t, 3).dial(10*time.Millisecond, nil)
		p.start(t, rwlock.WithTTL(10*time.Second))
		lease, err := p.Lock(t.Context(), "x")
		require.NoError(t, err)
		time.AfterFunc(5*time.Millisecond, func() { // as a listener does that redials
			for _, c := range p.clients {
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
