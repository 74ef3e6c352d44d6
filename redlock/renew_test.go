package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A renewal that too few masters have confirmed says how many did, and why each of the others did not.
func TestARenewalWithoutAQuorumSaysWhoConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		p := s.peer(time.Millisecond, rwlock.WithTTL(10*time.Second))
		p.warm(t)
		lease, err := p.Lock(t.Context(), "x")
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond) // all three have granted it
		p.links[0].Hold(testredis.Both)
		require.NoError(t, lease.Renew(t.Context()))
		p.links[2].Hold(testredis.Both)
		err = lease.Renew(t.Context())
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		var failed *rwlock.QuorumError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, []any{"x", 2, 1}, []any{failed.Name, failed.Need, failed.Got})
		require.Len(t, failed.Nodes, 2)
		for i, master := range []int{0, 2} {
			require.Equal(t, master, failed.Nodes[i].Index)
			require.ErrorAs(t, &failed.Nodes[i], new(*rwlock.NoReplyError))
		}
		require.NoError(t, lease.Err())
		p.links[0].Restore()
		p.links[2].Restore()
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, lease.Release(t.Context()))
	})
}
