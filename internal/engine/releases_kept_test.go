package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// So many releases wait for a server, and no more. The others have failed, and Close does not wait for them.
func TestReleasesKeptForAServer(t *testing.T) {
	e := &Engine{underWay: underWay{none: make(chan struct{}, 1)}}
	q := &releaseQueue{p: &releaseQueues{e: e}}
	const more = 3
	left := 0
	for range releasesKept + more {
		e.underWay.add(+1)
		q.mu.Lock()
		q.keepLocked(&release{onAnswer: func() { left++ }})
		q.unlock()
	}
	require.Len(t, q.waiting, releasesKept)
	require.EqualValues(t, releasesKept, e.underWay.n.Load())
	require.EqualValues(t, more, e.counters.unconfirmed.Load())
	require.Equal(t, more, left, "no attempt waits for them")
}
