package rwlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// group is a master and the server that takes its place, with a client that follows.
type group struct {
	old, next *testredis.Mini
	client    *failingOver
}

func newGroup(t *testing.T) *group {
	g := &group{old: testredis.NewMini(t), next: testredis.NewMini(t)}
	g.old.SetAddr("10.0.0.1:6379")
	g.next.SetAddr("10.0.0.2:6379")
	g.client = newFailingOver(t, rueidis.ClientModeSentinel, g.old.NewLink(), g.next.NewLink())
	return g
}

// replicate gives the next master what the old one has.
func (g *group) replicate(t *testing.T) {
	for _, key := range g.old.Miniredis().Keys() {
		require.Equal(t, "hash", g.old.Miniredis().Type(key), "the test is for these only")
		fields, err := g.old.Miniredis().HKeys(key)
		require.NoError(t, err)
		for _, field := range fields {
			g.next.Miniredis().HSet(key, field, g.old.Miniredis().HGet(key, field))
		}
	}
}

// failOver makes the client use the next master. The old one goes on as if it were one.
func (g *group) failOver() { g.client.now.Store(1) }

// What a replaced master, which has not noticed it, confirmed a moment ago is released on its successor too.
func TestAReleaseThatAReplacedMasterConfirmedIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		locker := lockerOf(t, g.client, rwlock.WithTTL(time.Hour))
		held, err := locker.Lock(t.Context(), "n")
		require.NoError(t, err)
		g.replicate(t)
		require.NoError(t, held.Release(t.Context()), "the old master has confirmed it")
		g.failOver()
		begun := time.Now()
		again, err := locker.Lock(t.Context(), "n")
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(begun), time.Second)
		time.Sleep(time.Minute)
		require.NoError(t, again.Err(), "what was repeated is over")
		require.NoError(t, again.Release(t.Context()))
	})
}

func TestSubscriptionsFollowTheMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t)
		locker := lockerOf(t, g.client, rwlock.WithTTL(time.Hour))
		g.failOver()
		held, err := lockerOf(t, g.client).Lock(t.Context(), "n")
		require.NoError(t, err)
		g.client.now.Store(0)
		held0, err := locker.Lock(t.Context(), "n")
		require.NoError(t, err)
		var granted time.Time
		over := make(chan error, 1)
		go func() {
			lease, err := locker.Lock(context.Background(), "n")
			if granted = time.Now(); err == nil {
				err = lease.Release(context.Background())
			}
			over <- err
		}()
		time.Sleep(500 * time.Millisecond)
		require.Len(t, g.old.Miniredis().PubSubChannels("*"), 1)
		g.failOver()
		time.Sleep(500 * time.Millisecond)
		require.Empty(t, g.old.Miniredis().PubSubChannels("*"), "the old master lives on")
		require.Len(t, g.next.Miniredis().PubSubChannels("*"), 1)
		released := time.Now()
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-over)
		require.Equal(t, released, granted, "by a message")
		require.Error(t, held0.Release(t.Context()), "the next master has never had it")
	})
}
