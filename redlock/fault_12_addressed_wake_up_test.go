package redlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// onMessage calls f for each message that the peer's connections bring.
func (p *peer) onMessage(f func()) {
	for _, link := range p.links {
		link.DropPushes(func(push []string) bool {
			if push[0] == "message" {
				f()
			}
			return false
		})
	}
}

// hasFewConnections fails the test if the peer has more than two to a master: for commands, and one that listens.
func (p *peer) hasFewConnections(t *testing.T) {
	for _, link := range p.links {
		require.LessOrEqual(t, link.Conns(), 2)
	}
}

// F12: a wake-up is addressed to the one process that may enter, over its one subscription connection.
func TestFault12WakeUpGoesToTheOneWhoMayEnter(t *testing.T) {
	const waiters = 12
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 5)
		held, err := s.peer(time.Millisecond).Lock(t.Context(), "door")
		require.NoError(t, err)

		var mu sync.Mutex
		told := make(map[int]int) // messages by process
		var work, rest sync.WaitGroup
		rest.Add(1)
		entered := make(chan int, waiters)
		for i := range waiters {
			p := s.peer(time.Millisecond)
			p.onMessage(func() {
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
				if err := p.Do(t.Context(), "door", enter); err != nil {
					t.Errorf("waiter %d: %v", i, err)
				}
			})
			time.Sleep(5 * time.Millisecond)
			p.hasFewConnections(t)
		}
		mu.Lock()
		require.Empty(t, told, "nothing has changed yet")
		mu.Unlock()
		require.NoError(t, held.Release(t.Context()))
		require.Equal(t, 0, <-entered)
		time.Sleep(100 * time.Millisecond)
		mu.Lock()
		require.Equal(t, map[int]int{0: len(s.minis)}, told, "one message from each master, to one process")
		mu.Unlock()
		rest.Done()
		work.Wait()
	})
}
