package engine_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/testredis"
)

// A conversion is done once the new hold is granted. The release of the old one is waited for until ctx ends, and at
// most for the release timeout; it is unconfirmed until it comes through.
func TestAConversionDoesNotOutlastItsContext(t *testing.T) {
	const ttl, soon, releaseTimeout = 10 * time.Second, 50 * time.Millisecond, 2 * time.Second
	for _, masters := range []int{1, 3} {
		for limit, want := range map[time.Duration]time.Duration{soon: soon, time.Hour: releaseTimeout} {
			t.Run(fmt.Sprint(masters, " masters, ctx of ", limit), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e, thaw := releasesFreeze(t, masters, ttl)
					lock := settings.Default().Lock
					lock.TTL = ttl
					var l engine.Lease
					r := engine.Request{Name: "n", Mode: fencing.Read, Entry: engine.Wait, Terms: lock.Terms()}
					require.NoError(t, e.Acquire(t.Context(), &l, r))
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					began := time.Now()
					require.NoError(t, e.Convert(ctx, &l, fencing.Write, engine.Upgrade, nil))
					require.Equal(t, want, time.Since(began))
					require.Equal(t, fencing.Write, l.Mode())
					require.Positive(t, e.Registered().Releases)

					thaw()
					time.Sleep(ttl)
					require.NoError(t, l.Err())
					require.Equal(t, engine.Registered{Leases: 1, Timers: 1}, e.Registered())
					require.NoError(t, l.Release(t.Context()))
					require.Zero(t, e.Registered())
				})
			})
		}
	}
}

// releasesFreeze returns an engine whose masters run no release until thaw is called.
func releasesFreeze(t *testing.T, masters int, ttl time.Duration) (e *engine.Engine, thaw func()) {
	thawed := make(chan struct{})
	var clients []rueidis.Client
	for i := range masters {
		mini := testredis.NewMini(t)
		mini.SetAddr(fmt.Sprintf("mini-%d:6379", i))
		link := mini.NewLink()
		link.OnCommand(func(cmd []string) {
			if isRelease(cmd) {
				<-thawed
			}
		})
		clients = append(clients, link.Client(t))
	}
	return newEngine(t, ttl, clients...), func() { close(thawed) }
}

// isRelease reports whether a command releases a hold and leaves no tombstone. Over several masters the digest of a
// script depends on their set, so it is known by its last arguments.
func isRelease(cmd []string) bool {
	last := len(cmd) - 1
	return testredis.Named("EVALSHA", "EVAL")(cmd) && cmd[last] == "0" && cmd[last-1] == "0"
}
