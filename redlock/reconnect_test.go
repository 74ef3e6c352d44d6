package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// All connections were replaced, as by a server that ends idle ones: the markers are read again at once.
func TestReconnectCostsNoRefreshInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSet(t, 3).dial(time.Millisecond, nil)
		p.start(t, rwlock.WithTTL(10*time.Second))
		p.warm(t)
		for _, l := range p.links {
			l.Cut()
		}
		time.Sleep(5 * time.Second)
		start := time.Now()
		p.warm(t)
		require.Less(t, time.Since(start), 200*time.Millisecond)
	})
}
