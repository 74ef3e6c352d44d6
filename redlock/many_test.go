package redlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

var tenNames = func() (names []string) {
	for i := range 10 {
		names = append(names, fmt.Sprint("n", i))
	}
	return names
}()

// Ten free locks are one command to each master, and so are their releases.
func TestUncontendedSeveralLocksAreOneRoundTrip(t *testing.T) {
	const way = 10 * time.Millisecond
	inFakeTime(t, 3, func(w *world) {
		p := w.ProcessAt(way)
		p.WarmUp()
		warmUpGroups(w, p)
		w.Pass(time.Second)
		for range 10 {
			w.ResetCalls()
			begun := time.Now()
			all := expect.NoError(p.LockAll(w.Ctx, rwlock.Writes(tenNames...))).In(w)
			require.Equal(w, 2*way, time.Since(begun))
			synctest.Wait() // before the answer of the last master, its releases leave tombstones and are in no group
			begun = time.Now()
			require.NoError(w, all.Release(w.Ctx))
			require.Equal(w, 2*way, time.Since(begun))
			w.Pass(time.Second)
			require.Equal(w, []int{2, 2, 2}, w.ScriptCalls())
		}
	})
}

// warmUpGroups has the masters know the script of groups.
func warmUpGroups(w *world, p *process) {
	all := expect.NoError(p.LockAll(w.Ctx, rwlock.Writes(tenNames...))).In(w)
	synctest.Wait()
	require.NoError(w, all.Release(w.Ctx))
}

// A silent minority costs a call of several locks nothing. A silent majority costs it one node timeout for all.
func TestSilentMastersAndSeveralLocks(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p := w.Process()
		p.WarmUp()
		warmUpGroups(w, p)
		p.Links[0].Blackhole(testredis.Both)
		begun := time.Now()
		all := expect.NoError(p.TryLockAll(w.Ctx, rwlock.Writes(tenNames...))).In(w)
		require.Equal(w, 2*time.Millisecond, time.Since(begun))
		require.NoError(w, all.Release(w.Ctx))

		p.Links[1].Blackhole(testredis.Both)
		begun = time.Now()
		_, err := p.TryLockAll(w.Ctx, rwlock.Writes(tenNames...))
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		require.Less(w, time.Since(begun), testkit.DefaultTTL/20+100*time.Millisecond)
		require.True(w, rwlock.Indeterminate(err))
		p.Restore(0, 1)
		w.Pass(2 * testkit.DefaultTTL)
		require.NoError(w, p.Close())
		q := w.Process()
		for _, name := range tenNames {
			q.RequireFree(name)
		}
	})
}

func TestMixedModes(t *testing.T) {
	for _, masters := range testredis.Few([]int{3}, []int{3, 5}) {
		inFakeTime(t, masters, testkit.MixedModes)
	}
	t.Run("servers", func(t *testing.T) {
		t.Parallel()
		testkit.MixedModes(testkit.Start(t, 3))
	})
}
