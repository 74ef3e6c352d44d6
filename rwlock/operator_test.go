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
		holder := w.Process()
		gone := holder.Take("x", rwlock.Write)
		waiters := []*pending{w.Process().Queue("x", rwlock.Write), w.Process().Queue("x", rwlock.Write)}
		client := w.NewLink().Client(w.T)
		require.NoError(w, client.Do(w.Ctx, client.B().Del().Key("fencelock:{x}").Build()).Error())
		first := w.First(waiters[0], waiters[1])
		w.Release(first.Granted())
		second := waiters[0]
		if first == second {
			second = waiters[1]
		}
		w.Release(second.Granted())
		w.Release(w.Process().Take("x", rwlock.Read))
		require.Error(w, gone.Release(w.Ctx))
	})
}
