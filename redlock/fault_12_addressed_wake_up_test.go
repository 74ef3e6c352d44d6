package redlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
)

// onMessage calls f for each message that the peer's connections bring.
func onMessage(p *process, f func()) {
	for _, link := range p.Links {
		link.DropPushes(func(push []string) bool {
			if push[0] == "message" {
				f()
			}
			return false
		})
	}
}

// F12: a wake-up is addressed to the one process that may enter, over its one subscription connection.
func TestFault12WakeUpGoesToTheOneWhoMayEnter(t *testing.T) {
	const waiters = 12
	inFakeTime(t, 5, func(w *world) {
		held := expect.NoError(w.Process().Lock(w.Ctx, "door")).In(w)

		var mu sync.Mutex
		told := make(map[int]int) // messages by process
		var work, rest sync.WaitGroup
		rest.Add(1)
		entered := make(chan int, waiters)
		for i := range waiters {
			p := w.Process()
			onMessage(p, func() {
				mu.Lock()
				told[i]++
				mu.Unlock()
			})
			enter := func(context.Context) error {
				entered <- i
				rest.Wait()
				return nil
			}
			work.Go(func() {
				if err := p.Do(w.Ctx, "door", enter); err != nil {
					w.Errorf("waiter %d: %v", i, err)
				}
			})
			time.Sleep(5 * time.Millisecond)
			for _, link := range p.Links {
				require.LessOrEqual(w, link.Conns(), 2, "for commands, and one that listens")
			}
		}
		mu.Lock()
		require.Empty(w, told, "nothing has changed yet")
		mu.Unlock()
		w.Release(held)
		require.Equal(w, 0, <-entered)
		time.Sleep(100 * time.Millisecond)
		mu.Lock()
		require.Equal(w, map[int]int{0: len(w.Minis)}, told, "one message from each master, to one process")
		mu.Unlock()
		rest.Done()
		work.Wait()
	})
}
