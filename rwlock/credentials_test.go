package rwlock_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// The password of the locks' user changes while locks are held, and every connection is replaced: none is lost. First
// both passwords hold for a time; then the old one ends before the program knows the new one.
func TestAPasswordChangesWhileLocksAreHeld(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	run := func(args ...string) {
		_, err := server.Command(args...)
		require.NoError(t, err, "%q", args)
	}
	run("ACL", "SETUSER", "ann", "on", ">first", "~*", "&*", "+@all")
	var password atomic.Value
	password.Store("first")
	client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{
		AuthCredentialsFn: func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			return rueidis.AuthCredentials{Username: "ann", Password: password.Load().(string)}, nil
		},
	})
	require.NoError(t, err)
	defer client.Close()
	locker, err := rwlock.New(client, rwlock.WithTTL(2*time.Minute), testredis.Patience())
	require.NoError(t, err)
	defer func() { require.NoError(t, locker.Close()) }()
	var leases []*rwlock.Lease
	for i := range 20 {
		lease, err := locker.Lock(t.Context(), fmt.Sprint(i))
		require.NoError(t, err)
		leases = append(leases, lease)
	}
	var last error
	renewed := func() bool {
		for _, lease := range leases {
			if last = lease.Renew(t.Context()); last != nil {
				return false
			}
		}
		return true
	}

	run("ACL", "SETUSER", "ann", ">second") // the old one holds too
	password.Store("second")
	run("ACL", "SETUSER", "ann", "<first")
	run("CLIENT", "KILL", "USER", "ann")
	require.Eventually(t, renewed, time.Minute, time.Millisecond)

	run("ACL", "SETUSER", "ann", "resetpass", ">third") // the program does not know it
	run("CLIENT", "KILL", "USER", "ann")
	refused := func() bool { return !renewed() && strings.Contains(last.Error(), "WRONGPASS") }
	require.Eventually(t, refused, time.Minute, time.Millisecond)
	require.ErrorIs(t, last, rwlock.ErrNoQuorum)
	password.Store("third")
	require.Eventually(t, renewed, time.Minute, time.Millisecond)
	for _, lease := range leases {
		require.NoError(t, lease.Err())
		require.NoError(t, lease.Release(t.Context()))
	}
	require.Zero(t, locker.Stats().Lost.Total())
}
