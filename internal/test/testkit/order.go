package testkit

import (
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// Order is which of numbered waiters entered when, and their tokens.
type Order struct {
	mu      sync.Mutex
	Entered []int
	Tokens  []fencing.Token
}

// Enter notes that the waiter with this number has entered.
func (o *Order) Enter(i int, lease *rwlock.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Entered, o.Tokens = append(o.Entered, i), append(o.Tokens, lease.Token())
}

// RequireFIFO fails the test unless n waiters have entered in the order of their numbers, each with a larger token.
func (o *Order) RequireFIFO(t require.TestingT, n int) {
	require.Equal(t, Span(0, n), o.Entered)
	require.IsIncreasing(t, o.Tokens)
}

// Span returns n numbers from a first one on.
func Span(first, n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = first + i
	}
	return all
}
