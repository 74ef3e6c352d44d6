package rwlock_test

import (
	"context"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A user who may not listen on the channels of the locks is told so by its first wait. What needs no waiting goes on.
func TestUserWithoutChannelRightsIsTold(t *testing.T) {
	server := testredis.Start(t)
	commandOn(t, server, "ACL", "SETUSER", "app", "on", ">secret", "~fencelock:*", "+@all", "resetchannels")
	holder, err := rwlock.New(server.Client(t))
	require.NoError(t, err)
	defer holder.Close()
	client, err := dial(t, server.Addr(), rueidis.ClientOption{Username: "app", Password: "secret"})
	require.NoError(t, err)
	locker, err := rwlock.New(client)
	require.NoError(t, err)
	defer locker.Close()

	free, err := locker.Lock(t.Context(), "free")
	require.NoError(t, err)
	require.NoError(t, free.Release(t.Context()))

	held, err := holder.Lock(t.Context(), "orders")
	require.NoError(t, err)
	for how, take := range acquisitions(locker) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := take(ctx, "orders")
		if how == "TryLock" || how == "TryRLock" {
			require.ErrorIs(t, err, rwlock.ErrNotAcquired, how)
			require.NotErrorIs(t, err, rwlock.ErrMessages, how)
		} else {
			require.ErrorIs(t, err, rwlock.ErrMessages, how)
			require.NoError(t, ctx.Err(), "%s waited all the same", how)
		}
		cancel()
	}
	require.NoError(t, held.Release(t.Context()))
}
