package rwlock_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A cluster behind one address looks like one server, and refuses calls for several locks. Leases that are renewed in
// one call elsewhere live on there, and the log says once that they are renewed one by one.
func TestLeasesWhereCallsForSeveralLocksAreRefused(t *testing.T) {
	everywhere(t, func(w *world) {
		const leases, rounds = 40, 4
		var j testkit.Log
		p, other := w.Process(j.Option()), w.Process()
		p.Link.Deny(testredis.CrossSlot)
		other.Link.Deny(testredis.CrossSlot)
		all := holdMany(w.T, p.Locker, leases)
		waiter := other.Queue("0", rwlock.Write)
		w.Eventually("each lease to be renewed some times", func() bool {
			return p.Stats().Renewed >= leases*rounds
		})
		noneLost(w.T, p.Locker, all)
		require.Zero(w, p.Stats().RenewFailed)
		w.Release(all...)
		waiter.Granted()
		require.NoError(w, p.Close()) // the log is complete
		text := j.String()
		require.Equal(w, 1, strings.Count(text, "one by one"), text)
		require.Contains(w, text, "CROSSSLOT")
	})
}
