package rwlock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestFIFOOfManyProcesses(t *testing.T) {
	everywhere(t, func(w *world) {
		const waiters, lockers = 200, 10
		w.TTL = 10 * time.Second // a busy machine must not drop a waiter
		held := w.Process().Take("n", rwlock.Write)
		var processes []*process
		for range lockers {
			processes = append(processes, w.Process())
		}
		var r testkit.Order
		var all []*pending
		for i := range waiters {
			p := processes[i*7%lockers]
			all = append(all, p.LineUp("n", rwlock.Write, func(l *rwlock.Lease) { r.Enter(i, l) }))
		}
		w.Release(held)
		for _, a := range all {
			a.Granted()
		}
		require.Len(w, r.Entered, waiters)
		for i := range waiters {
			require.Equal(w, i, r.Entered[i], "%v", r.Entered)
			if i > 0 {
				require.Greater(w, r.Tokens[i], r.Tokens[i-1])
			}
		}
		handedOff := uint64(0)
		for _, p := range processes {
			handedOff += p.Stats().HandedOff
		}
		require.EqualValues(w, waiters, handedOff, "each from hand to hand")
		w.OnlyTokensLeft()
	})
}

// Each of these readers stays until all the readers of its group are in: if one were kept out, nobody would get on.
func TestFIFOReadersBetweenTwoWritersEnterTogether(t *testing.T) {
	everywhere(t, func(w *world) {
		const lockers = 10
		w.TTL = 10 * time.Second            // as above
		groups := []int{3, 0, 17, 1, 40, 2} // readers, with a writer before each group and after the last
		held := w.Process().Take("n", rwlock.Write)
		var processes []*process
		for range lockers {
			processes = append(processes, w.Process())
		}
		var r testkit.Order
		var all []*pending
		next := func(mode rwlock.Mode, then func()) {
			i := len(all)
			all = append(all, processes[i%lockers].LineUp("n", mode, func(l *rwlock.Lease) {
				r.Enter(i, l)
				then()
			}))
		}
		for _, size := range groups {
			next(rwlock.Write, func() {})
			var inside sync.WaitGroup
			inside.Add(size)
			for range size {
				next(rwlock.Read, func() {
					inside.Done()
					inside.Wait()
				})
			}
		}
		next(rwlock.Write, func() {})
		released := time.Now()
		w.Release(held)
		for _, a := range all {
			a.Granted()
		}
		if w.Mini != nil {
			require.Zero(w, time.Since(released), "nobody waited for a timer")
		}
		enteredInGroups(w.T, &r, groups)
		w.OnlyTokensLeft()
	})
}

// enteredInGroups fails the test if not each group of readers entered together, between two writers.
func enteredInGroups(t *testing.T, r *testkit.Order, groups []int) {
	first := 0
	for _, size := range groups {
		require.Equal(t, first, r.Entered[first], "the writer before them: %v", r.Entered)
		require.ElementsMatch(t, testkit.Span(first+1, size), r.Entered[first+1:first+1+size], "a group: %v", r.Entered)
		first += 1 + size
	}
	require.Equal(t, first, r.Entered[first])
}
