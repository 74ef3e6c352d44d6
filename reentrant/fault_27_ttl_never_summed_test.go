package reentrant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// F27: however deep a holder was, its crash blocks the others for one TTL. Nesting sets no time, joining sets its own.
func TestFault27ReentryNeverSumsTTLs(t *testing.T) {
	const ttl = 10 * time.Second
	inFakeTime(t, func(t *testing.T, w *world, mini *testredis.Mini) {
		crash, doomed := doomedProcesses(t, mini, 2, rwlock.WithTTL(ttl))
		others := w.process()
		ctx, owner := owned(t)
		for range 3 {
			must(t)(doomed[0].Lock(ctx, "a"))
		}
		there := elsewhere(t, owner)
		for range 3 {
			must(t)(doomed[1].Lock(there, "a"))
		}
		time.Sleep(time.Minute) // renewals do not add up either
		state := others.inspect(t, "a")
		require.Len(t, state.Holders, 2)
		for _, h := range state.Holders {
			require.LessOrEqual(t, h.Remaining, ttl)
		}

		crash()
		stranger, _ := owned(t)
		_, err := others.TryLock(stranger, "a")
		require.ErrorIs(t, err, rwlock.ErrNotAcquired)
		begun := time.Now()
		hold := must(t)(others.Lock(stranger, "a"))
		require.LessOrEqual(t, time.Since(begun), ttl)
		require.NoError(t, hold.Release(stranger))
	})
}

// doomedProcesses returns processes whose links all go dead at once.
func doomedProcesses(
	t *testing.T, mini *testredis.Mini, n int, opts ...rwlock.Option,
) (crash func(), all []*reentrant.Locker) {
	t.Helper()
	var links []*testredis.Link
	for range n {
		link := mini.NewLink()
		remote, err := rwlock.New(link.Client(t), opts...)
		require.NoError(t, err)
		t.Cleanup(func() { _ = remote.Close() })
		links, all = append(links, link), append(all, reentrant.New(remote))
	}
	return func() {
		for _, link := range links {
			link.Blackhole(testredis.Both)
		}
	}, all
}
