package rwlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// An operator who deletes a lock's main key, or a server that evicts it, leaves queue entries without a record. They
// must not be taken for waiters, or nobody gets in any more.
func TestDeletedKeyDoesNotWedgeTheQueue(t *testing.T) {
	everywhere(t, func(w *world) {
		holder := w.process()
		gone := holder.lock("x", rwlock.Write)
		waiters := []*pending{w.process().queue("x", rwlock.Write), w.process().queue("x", rwlock.Write)}
		client := w.newLink().Client(w.t)
		require.NoError(w.t, client.Do(w.ctx, client.B().Del().Key("fencelock:{x}").Build()).Error())
		first := w.first(waiters[0], waiters[1])
		w.release(first.granted())
		second := waiters[0]
		if first == second {
			second = waiters[1]
		}
		w.release(second.granted())
		w.release(w.process().lock("x", rwlock.Read))
		require.Error(w.t, gone.Release(w.ctx))
	})
}
