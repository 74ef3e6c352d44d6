package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// A link slower than the node timeout: late answers are heard.
func TestSlowLinkRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		p := s.peer(35*time.Millisecond, rwlock.WithTTL(time.Second))
		lease, err := p.Lock(soon(t, 20*time.Second), "x")
		require.NoError(t, err)
		s.reset()
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, lease.Err())
		}
		st := p.Stats()
		require.NoError(t, lease.Release(t.Context()))
		require.Greater(t, st.Renewed, uint64(20))
		require.LessOrEqual(t, st.RenewFailed, uint64(1), "before the link was known to be slow")
	})
}

// TryLock by users who may not subscribe: nobody waits.
func TestTryWithoutChannelRights(t *testing.T) {
	t.Parallel()
	var clients []rueidis.Client
	for range 3 {
		server := testredis.Start(t)
		command(t, server, "ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "resetchannels")
		o := server.Option()
		o.Username, o.Password = "u", "p"
		c, err := rwlock.Dial(server.Addr(), o)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		clients = append(clients, c)
	}
	locker, err := redlock.New(clients, rwlock.WithTTL(10*time.Second), testredis.Patience())
	require.NoError(t, err)
	defer locker.Close()
	failed := 0
	var last error
	for range 60 {
		lease, err := locker.TryLock(t.Context(), "x")
		if err == nil {
			require.NoError(t, lease.Release(t.Context()))
		} else {
			failed, last = failed+1, err
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d of 60 failed: %v", failed, last)
	require.Zero(t, failed)
}
