package rwlock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// Whatever others do between the look at the count and the step, a change is made as if they had come before it or
// after it: no reader is forgotten, and none is told that it is not in.
func TestAChangeOfTheReaderCountIsOneStep(t *testing.T) {
	for name := range rwlock.ReaderChanges {
		for first := range rwlock.ReaderChanges {
			for second := range rwlock.ReaderChanges {
				for readers := range 4 {
					for _, open := range []bool{true, false} {
						isOneStep(t, name, []string{first, second}, readers, open)
					}
				}
			}
		}
	}
}

// isOneStep compares a change that is interrupted by others with the same change before them, and after them.
func isOneStep(t *testing.T, name string, others []string, readers int, open bool) {
	t.Helper()
	type outcome struct {
		changed bool
		state   int64
	}
	change := rwlock.ReaderChanges[name]
	interrupt := func(c *rwlock.ReaderCount) {
		for _, other := range others {
			rwlock.ReaderChanges[other](c)
		}
	}
	before, amid, after := rwlock.NewReaderCount(readers, open), rwlock.NewReaderCount(readers, open),
		rwlock.NewReaderCount(readers, open)
	one, two := change(before), amid.Interrupted(name, func() { interrupt(amid) })
	interrupt(before)
	interrupt(after)
	three := change(after)
	assert.Contains(t, []outcome{{one, before.State()}, {three, after.State()}}, outcome{two, amid.State()},
		"%s, with %v amid it, of %d readers, open: %v", name, others, readers, open)
}

// Readers that come and go all the time find each other, the first and the last of them too; in the end nobody is in.
func TestReadersThatComeAndGo(t *testing.T) {
	inFakeTime(t, func(w *world) {
		mu := w.process().RWMutex("n", rwlock.WithLinger(time.Hour))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 20_000 {
					if !assert.NoError(w.t, mu.RLock(w.ctx)) || !assert.NoError(w.t, mu.RUnlock(w.ctx)) {
						return
					}
				}
			})
		}
		all.Wait()
		require.ErrorIs(w.t, mu.RUnlock(w.ctx), rwlock.ErrNotHeld)
		require.NoError(w.t, mu.TryLock(w.ctx))
		require.NoError(w.t, mu.Unlock(w.ctx))
	})
}
