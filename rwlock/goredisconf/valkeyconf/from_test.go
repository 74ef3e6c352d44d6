package valkeyconf_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/rwlock/goredisconf/valkeyconf"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, testredis.LeftByClusters()...) }

// locks takes a lock by the options, and requires the keys where a client of valkey-go with these options finds them.
func locks(t *testing.T, o valkey.ClientOption) (ignored []string) {
	t.Helper()
	there := expect.NoError(valkey.NewClient(o)).In(t)
	defer there.Close()
	addr, base, ignored, err := valkeyconf.From(o)
	require.NoError(t, err)
	client := expect.NoError(rwlock.Dial(addr, base)).In(t)
	defer client.Close()
	locker := expect.NoError(rwlock.New(client, testredis.Patience())).In(t)
	defer func() { require.NoError(t, locker.Close()) }()
	require.NoError(t, locker.Do(t.Context(), "n", func(ctx context.Context) error {
		found := expect.NoError(there.Do(ctx, there.B().Exists().Key("fencelock:{n}").Build()).AsInt64()).In(t)
		require.EqualValues(t, 1, found)
		return nil
	}))
	return ignored
}

func TestOneServer(t *testing.T) {
	server := testredis.StartBinary(t, testredis.Valkey(t))
	expect.NoError(server.Command("ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all")).In(t)
	base := valkey.ClientOption{
		InitAddress: []string{server.Addr()}, SelectDB: 3, DisableCache: true, ClientName: "shop",
		AuthCredentialsFn: func(valkey.AuthCredentialsContext) (valkey.AuthCredentials, error) {
			return valkey.AuthCredentials{Username: "ann", Password: "secret"}, nil
		},
	}
	require.Equal(t, []string{"DisableCache"}, locks(t, base), "found out")
	base.ForceSingleClient, base.AlwaysRESP2 = true, true
	require.Equal(t, []string{"DisableCache"}, locks(t, base))
	addr, option, _, err := valkeyconf.From(base)
	require.NoError(t, err)
	require.Equal(t, server.Addr(), addr)
	require.Empty(t, option.InitAddress)
}

func TestSentinel(t *testing.T) {
	option := testredis.StartSentinel(t, testredis.Valkey(t)).Option()
	require.Empty(t, locks(t, valkey.ClientOption{
		InitAddress: option.InitAddress, Sentinel: valkey.SentinelOption{MasterSet: option.Sentinel.MasterSet},
		ConnWriteTimeout: time.Minute,
	}))
}

func TestCluster(t *testing.T) {
	cluster := testredis.StartCluster(t, testredis.Valkey(t), 0)
	require.Equal(t, []string{"SendToReplicas"}, locks(t, valkey.ClientOption{
		InitAddress:    cluster.Option().InitAddress,
		SendToReplicas: func(cmd valkey.Completed) bool { return cmd.IsReadOnly() },
	}))
}

func TestInput(t *testing.T) {
	_, _, _, err := valkeyconf.From(valkey.ClientOption{})
	require.ErrorIs(t, err, rwlock.ErrOption)
	given := valkey.ClientOption{
		InitAddress: []string{"a:1", "b:2"}, TLSConfig: &tls.Config{ServerName: "a"}, ReplicaOnly: true,
		Sentinel: valkey.SentinelOption{MasterSet: "m", TLSConfig: &tls.Config{ServerName: "s"}, Username: "sue"},
	}
	_, base, ignored, err := valkeyconf.From(given)
	require.NoError(t, err)
	require.Equal(t, []string{"ReplicaOnly"}, ignored)
	require.NotSame(t, given.TLSConfig, base.TLSConfig)
	require.NotSame(t, given.Sentinel.TLSConfig, base.Sentinel.TLSConfig)
	require.Equal(t, "s", base.Sentinel.TLSConfig.ServerName)
	require.Equal(t, "sue", base.Sentinel.Username)
	base.InitAddress[0] = "changed"
	require.Equal(t, "a:1", given.InitAddress[0])
}
