package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A release goes on in the background as long as a quorum can confirm it: one master that refuses it for good does not
// end that, two of three do.
func TestAReleaseIsRefusedWhereNoQuorumCanConfirm(t *testing.T) {
	for refusing, forGood := range map[int]bool{1: false, 2: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newSet(t, 3)
			p := s.peer(time.Millisecond, rwlock.WithTTL(10*time.Second))
			p.warm(t)
			lease, err := p.Lock(t.Context(), "x")
			require.NoError(t, err)
			time.Sleep(10 * time.Millisecond) // all three have granted it
			for _, mini := range s.minis[:refusing] {
				mini.Miniredis().SetError("NOPERM this user has no permissions to run the 'evalsha' command")
			}
			p.links[2].Hold(testredis.Both)
			err = lease.Release(t.Context())
			require.ErrorIs(t, err, rwlock.ErrNoQuorum)
			require.Equal(t, !forGood, rwlock.Indeterminate(err), "%v", err)
			p.links[2].Restore()
			require.NoError(t, p.Close())
		})
	}
}
