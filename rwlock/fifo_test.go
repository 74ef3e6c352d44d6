package rwlock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// roll notes who has entered, in that order.
type roll struct {
	mu     sync.Mutex
	order  []int
	tokens []fencing.Token
}

func (r *roll) enter(i int, lease *rwlock.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order, r.tokens = append(r.order, i), append(r.tokens, lease.Token())
}

// lineUp queues an acquisition and returns when the server has told the process that it waits; work then runs under the
// lease. It is the cheap form of process.queue, for many.
func (p *process) lineUp(name string, mode rwlock.Mode, work func(*rwlock.Lease)) *pending {
	p.w.t.Helper()
	n := p.Stats().Waiting
	a := &pending{w: p.w, over: make(chan struct{})}
	take := p.Lock
	if mode == rwlock.Read {
		take = p.RLock
	}
	go func() {
		defer close(a.over)
		if a.lease, a.err = take(p.w.ctx, name); a.err == nil {
			work(a.lease)
			a.err = a.lease.Release(p.w.ctx)
		}
	}()
	p.w.eventually("it waits", func() bool { return p.Stats().Waiting == n+1 })
	return a
}

func TestFIFOOfManyProcesses(t *testing.T) {
	everywhere(t, func(w *world) {
		const waiters, lockers = 200, 10
		w.ttl = 10 * time.Second // a busy machine must not drop a waiter
		held := w.process().lock("n", rwlock.Write)
		var processes []*process
		for range lockers {
			processes = append(processes, w.process())
		}
		var r roll
		var all []*pending
		for i := range waiters {
			p := processes[i*7%lockers]
			all = append(all, p.lineUp("n", rwlock.Write, func(l *rwlock.Lease) { r.enter(i, l) }))
		}
		w.release(held)
		for _, a := range all {
			a.granted()
		}
		require.Len(w.t, r.order, waiters)
		for i := range waiters {
			require.Equal(w.t, i, r.order[i], "%v", r.order)
			if i > 0 {
				require.Greater(w.t, r.tokens[i], r.tokens[i-1])
			}
		}
		handedOff := uint64(0)
		for _, p := range processes {
			handedOff += p.Stats().HandedOff
		}
		require.EqualValues(w.t, waiters, handedOff, "each from hand to hand")
		w.onlyTokensLeft()
	})
}

// Each of these readers stays until all the readers of its group are in: if one were kept out, nobody would get on.
func TestFIFOReadersBetweenTwoWritersEnterTogether(t *testing.T) {
	everywhere(t, func(w *world) {
		const lockers = 10
		w.ttl = 10 * time.Second            // as above
		groups := []int{3, 0, 17, 1, 40, 2} // readers, with a writer before each group and after the last
		held := w.process().lock("n", rwlock.Write)
		var processes []*process
		for range lockers {
			processes = append(processes, w.process())
		}
		var r roll
		var all []*pending
		next := func(mode rwlock.Mode, then func()) {
			i := len(all)
			all = append(all, processes[i%lockers].lineUp("n", mode, func(l *rwlock.Lease) {
				r.enter(i, l)
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
		w.release(held)
		for _, a := range all {
			a.granted()
		}
		if w.mini != nil {
			require.Zero(w.t, time.Since(released), "nobody waited for a timer")
		}
		r.enteredInGroups(w.t, groups)
		w.onlyTokensLeft()
	})
}

// enteredInGroups fails the test if not each group of readers entered together, between two writers.
func (r *roll) enteredInGroups(t *testing.T, groups []int) {
	first := 0
	for _, size := range groups {
		require.Equal(t, first, r.order[first], "the writer before them: %v", r.order)
		require.ElementsMatch(t, span(first+1, size), r.order[first+1:first+1+size], "a group: %v", r.order)
		first += 1 + size
	}
	require.Equal(t, first, r.order[first])
}

// span returns n numbers from a first one on.
func span(first, n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = first + i
	}
	return all
}
