package redlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// List shows each lock of any master once, and goes on without a master that does not answer.
func TestListIsTheUnionOfTheMasters(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		w.TTL = time.Minute
		holder, waiter := w.Process(), w.Process()
		holder.Section("warm-up")
		held := holder.Take("held", rwlock.Write)
		holder.CutOff(0, 1)
		elsewhere := holder.Take("elsewhere", rwlock.Write) // on three masters
		waiting := waiter.InTurn(w.Ctx, "held", rwlock.Write)
		time.Sleep(50 * time.Millisecond)

		operator := w.Process()
		states := func() (shown map[string]rwlock.State, failed []error) {
			shown = map[string]rwlock.State{}
			for state, err := range operator.List(w.Ctx, "") {
				time.Sleep(time.Second)
				if state.Name == "" {
					failed = append(failed, err)
					continue
				}
				require.NotContains(w, shown, state.Name)
				require.Len(w, state.Masters, 5)
				shown[state.Name] = state
			}
			return shown, failed
		}
		shown, failed := states()
		require.Empty(w, failed)
		require.Len(w, shown, 2)
		require.Equal(w, held.Token(), shown["held"].Token)
		require.Len(w, shown["held"].Holders, 1)
		require.Len(w, shown["held"].Waiters, 1)
		require.Len(w, shown["elsewhere"].Holders, 1)
		require.Empty(w, shown["elsewhere"].Masters[0].Holders)

		w.Minis[1].Stop()
		w.Minis[2].Freeze()
		begun := time.Now()
		shown, failed = states()
		require.Less(w, time.Since(begun), 7500*time.Millisecond, "4 s of this test, 2 s for the master's view of "+
			"a lock, and 1 s for its own list")
		require.Len(w, shown, 2)
		require.Len(w, shown["held"].Holders, 1)
		require.Len(w, failed, 2, "one for each master")
		for i, err := range failed {
			var node *rwlock.NodeError
			require.ErrorAs(w, err, &node)
			require.Equal(w, i+1, node.Index)
		}

		require.ErrorContains(w, failed[0], "refused")
		require.ErrorContains(w, failed[1], "dial timed out after 1s")

		w.Minis[3].Stop()
		failures := 0
		for state, err := range operator.List(w.Ctx, "") {
			if state.Name == "" {
				failures++
			}
			missing := state.Name != "" || failures == 3 // held locks may be missing in the whole list
			require.Equal(w, missing, errors.Is(err, rwlock.ErrNoQuorum), "%v", err)
		}
		w.Minis[1].Recover()
		w.Minis[2].Thaw()
		w.Minis[3].Recover()
		holder.Restore(0, 1)
		w.Release(held, elsewhere)
		w.Release(waiting.Granted())
	})
}
