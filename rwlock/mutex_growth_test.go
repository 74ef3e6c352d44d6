package rwlock_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Eight processes read all the time, and one of them writes once a second: what the server is asked does not depend on
// how many goroutines read.
func TestCommandsDoNotGrowWithTheNumberOfReaders(t *testing.T) {
	few, many := commandsOfReaders(t, 8), commandsOfReaders(t, 64)
	t.Logf("8 processes, 1 write per second: %d commands in 10 s with 8 readers each, %d with 64", few, many)
	// Some more where in a process nobody reads for a moment, which fewer readers make likelier.
	for _, commands := range []int{few, many} {
		require.Less(t, commands, 8*10*4, "per process and write")
	}
	require.LessOrEqual(t, many, 3*few/2)
}

func commandsOfReaders(t *testing.T, readers int) (commands int) {
	inFakeTime(t, func(w *world) {
		var processes []*process
		for range 8 {
			p := w.Process()
			hasWaited(p)
			processes = append(processes, p)
		}
		end := time.Now().Add(10 * time.Second)
		for _, p := range processes {
			p.Link.ResetCalls()
		}
		var all sync.WaitGroup
		for number, p := range processes {
			mu := p.RWMutex("n")
			for i := range readers {
				// No two readers read for the same time. Those that a writer lets in together would otherwise leave
				// together, in an order that is up to Go's scheduler: with nobody left for a moment, or not.
				hold := 10*time.Millisecond + time.Duration(i*len(processes)+number)*time.Microsecond
				all.Go(func() {
					time.Sleep(time.Duration(i) * 10 * time.Millisecond / time.Duration(readers))
					for time.Now().Before(end) {
						require.NoError(w, mu.RLock(w.Ctx))
						time.Sleep(hold)
						require.NoError(w, mu.RUnlock(w.Ctx))
					}
				})
			}
		}
		mu := processes[0].RWMutex("n")
		for time.Now().Before(end) {
			time.Sleep(time.Second)
			require.NoError(w, mu.Lock(w.Ctx))
			require.NoError(w, mu.Unlock(w.Ctx))
		}
		all.Wait()
		for _, p := range processes {
			for _, n := range sent(p.Link) {
				commands += n
			}
		}
	})
	return commands
}
