package localqueue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/localqueue"
)

// An admitted waiter has the lock: it is too late to give up, whatever it has heard.
func TestAnAdmittedWaiterCannotGiveUp(t *testing.T) {
	var q localqueue.Queue
	q.Enter(write)
	w := localqueue.NewWaiter(write, time.Time{})
	q.Enqueue(w)
	q.Leave(write)
	q.AdmitFirst()
	require.False(t, q.GiveUp(w))
	require.Equal(t, 1, q.Holders())
}

// Readers join only while their caller allows it, and only while no waiter is ahead of them.
func TestAllowJoin(t *testing.T) {
	var q localqueue.Queue
	q.AllowJoin(true)
	require.False(t, q.TryJoin(), "there are no readers")
	q.Enter(read)
	require.False(t, q.TryJoin(), "not allowed so far")
	q.AllowJoin(true)
	require.True(t, q.TryJoin())
	q.AllowJoin(false)
	require.False(t, q.TryJoin())
	q.Enqueue(localqueue.NewWaiter(write, time.Time{}))
	q.AllowJoin(true)
	require.False(t, q.TryJoin(), "a writer waits")
	require.Equal(t, 2, q.Readers())
	require.True(t, q.TryLeave())
	require.False(t, q.TryLeave(), "the last reader takes the mutex")
}
