package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// So many releases wait for a server, and no more. The others count as unconfirmed, and Close does not wait for them.
func TestReleasesKeptForAServer(t *testing.T) {
	e := &Engine{unconfirmed: newUnconfirmed()}
	q := &releaseQueue{p: &releaseQueues{e: e}}
	const more = 3
	left := 0
	for range releasesKept + more {
		e.unconfirmed.add(+1)
		q.mu.Lock()
		q.keepLocked(&release{left: func() { left++ }})
		q.unlock()
	}
	require.Len(t, q.waiting, releasesKept)
	require.EqualValues(t, releasesKept, e.unconfirmed.n.Load())
	require.EqualValues(t, more, e.counters.unconfirmed.Load())
	require.Equal(t, more, left, "no attempt waits for them")
}
