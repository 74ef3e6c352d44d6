package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// What keeps a master from voting is told apart by type: it did not answer in time, or it abstains.
func TestCausesOfMissingVotesHaveTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		s := newSet(t, 3)
		p := s.peer(time.Millisecond, rwlock.WithTTL(ttl))
		p.warm(t)
		s.minis[0].Crash()
		s.minis[0].Recover()
		time.Sleep(ttl / 10)
		p.warm(t) // it is found to be empty
		time.Sleep(ttl / 10)
		p.links[1].Hold(testredis.Both)
		_, err := p.TryLock(t.Context(), "x")
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		var abstains *rwlock.AbstainError
		require.ErrorAs(t, err, &abstains)
		require.Positive(t, abstains.For)
		require.LessOrEqual(t, abstains.For, ttl)
		var late *rwlock.NoReplyError
		require.ErrorAs(t, err, &late)
		require.Positive(t, late.After)
		require.LessOrEqual(t, late.After, time.Second)
		p.links[1].Restore()
	})
}
