package rwlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// F6: renew only what exists; never create; never touch another's entry.

// The hold is gone and nobody else has taken the lock: the holder must learn that, and not be let in again.
func TestF06HoldThatIsGoneIsReportedAsLost(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, _ *process, lease *rwlock.Lease) {
		w.FlushAll()
		w.UntilOver(lease)
		require.Equal(w, rwlock.ReasonGone, w.Loss(lease.Err()).Reason)
		require.Empty(w, w.Keys())
		allFail(w, rwlock.ErrLost, lease.Renew, lease.Release)
		require.Empty(w, w.Keys())
	}))
}
