package rwlock_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A cluster behind one address looks like one server, and refuses calls for several locks. Leases that are renewed in
// one call elsewhere live on there, and the log says once that they are renewed one by one.
func TestLeasesWhereCallsForSeveralLocksAreRefused(t *testing.T) {
	everywhere(t, func(w *world) {
		const leases, rounds = 40, 4
		var j journal
		p, other := w.process(j.option()), w.process()
		p.link.Deny(testredis.CrossSlot)
		other.link.Deny(testredis.CrossSlot)
		all := holdMany(w.t, p.Locker, leases)
		waiter := other.queue("0", rwlock.Write)
		w.eventually("each lease to be renewed some times", func() bool {
			return p.Stats().Renewed >= leases*rounds
		})
		noneLost(w.t, p.Locker, all)
		require.Zero(w.t, p.Stats().RenewFailed)
		w.release(all...)
		waiter.granted()
		require.NoError(w.t, p.Close()) // the log is complete
		text, _ := j.read()
		require.Equal(w.t, 1, strings.Count(text, "one by one"), text)
		require.Contains(w.t, text, "CROSSSLOT")
	})
}
