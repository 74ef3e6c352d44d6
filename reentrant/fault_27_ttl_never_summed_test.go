package reentrant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// F27: however deep a holder was, its crash blocks the others for one TTL. Nesting sets no time, joining sets its own.
func TestFault27ReentryNeverSumsTTLs(t *testing.T) {
	const ttl = 10 * time.Second
	inFakeTime(t, func(w *world) {
		doomed := []*process{start(w, rwlock.WithTTL(ttl)), start(w, rwlock.WithTTL(ttl))}
		others := start(w)
		ctx, owner := owned(w)
		for range 3 {
			must(w)(doomed[0].Lock(ctx, "a"))
		}
		there := elsewhere(w, owner)
		for range 3 {
			must(w)(doomed[1].Lock(there, "a"))
		}
		time.Sleep(time.Minute) // renewals do not add up either
		state := others.inspect("a")
		require.Len(w, state.Holders, 2)
		for _, h := range state.Holders {
			require.LessOrEqual(w, h.Remaining, ttl)
		}

		for _, p := range doomed {
			p.remote.Link.Blackhole(testredis.Both)
		}
		stranger, _ := owned(w)
		require.ErrorIs(w, expect.ErrorOf(others.TryLock(stranger, "a")), rwlock.ErrNotAcquired)
		begun := time.Now()
		hold := must(w)(others.Lock(stranger, "a"))
		require.LessOrEqual(w, time.Since(begun), ttl)
		require.NoError(w, hold.Release(stranger))
	})
}
