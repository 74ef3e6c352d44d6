package goredisconf_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/rwlock/goredisconf"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, append(testredis.LeftByClusters(),
		// go-redis closes the connections of a pool without waiting for those that it is making.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).addIdleConn"))...)
}

// locks takes a lock by the options, and requires the keys where the client of go-redis with these options finds them.
func locks[O goredisconf.Options](t *testing.T, options O, there redis.UniversalClient) (ignored []string) {
	t.Helper()
	addr, base, ignored, err := goredisconf.From(options)
	require.NoError(t, err)
	client := expect.NoError(rwlock.Dial(addr, base)).In(t)
	defer client.Close()
	locker := expect.NoError(rwlock.New(client, testredis.Patience())).In(t)
	defer func() { require.NoError(t, locker.Close()) }()
	require.NoError(t, locker.Do(t.Context(), "n", func(ctx context.Context) error {
		require.EqualValues(t, 1, expect.NoError(there.Exists(ctx, "fencelock:{n}").Result()).In(t))
		return nil
	}))
	require.NoError(t, there.Close())
	return ignored
}

func TestOptions(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	server := testredis.Start(t, "--unixsocket", socket)
	for _, command := range [][]string{
		{"ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all"}, {"ACL", "SETUSER", "default", "resetpass", ">other"},
	} {
		expect.NoError(server.Command(command...)).In(t)
	}
	plain := func() *redis.Options {
		return &redis.Options{Addr: server.Addr(), Username: "ann", Password: "secret", DB: 3}
	}
	var asked atomic.Int64
	for name, change := range changes(t, server, socket, &asked) {
		t.Run(name, func(t *testing.T) {
			asked.Store(0)
			o := plain()
			change(o)
			o.ClientName = "shop"
			require.Empty(t, locks(t, o, redis.NewClient(plain())))
			if o.Dialer != nil || o.CredentialsProvider != nil || o.StreamingCredentialsProvider != nil {
				require.Positive(t, asked.Load())
			}

			// The options of the client that was made with them have all defaults filled in. These are not named.
			made := redis.NewClient(o)
			require.Empty(t, locks(t, made.Options(), redis.NewClient(plain())))
			require.NoError(t, made.Close())
		})
	}
	t.Run("universal", func(t *testing.T) {
		u := &redis.UniversalOptions{
			Addrs: []string{server.Addr()}, Username: "ann", Password: "secret", DB: 3, MaxRetries: 2,
		}
		require.Equal(t, []string{"MaxRetries"}, locks(t, u, redis.NewUniversalClient(u)))
	})
	for name, o := range map[string]*redis.Options{
		"a wrong password": {Addr: server.Addr(), Username: "ann", Password: "wrong"},
		"a failed provider": {
			Addr: server.Addr(), StreamingCredentialsProvider: &provider{asked: &asked, err: errors.New("no token")},
		},
	} {
		addr, base, _, err := goredisconf.From(o)
		require.NoError(t, err)
		client := expect.NoError(rwlock.Dial(addr, base)).In(t)
		require.Error(t, client.Do(t.Context(), client.B().Ping().Build()).Error(), name)
		client.Close()
	}
}

// A name without a password is not sent, as go-redis has it: the server knows no such user.
func TestANameWithoutAPassword(t *testing.T) {
	server := testredis.Start(t)
	name := func() (string, string) { return "shop", "" }
	for what, o := range map[string]*redis.Options{
		"name":     {Addr: server.Addr(), Username: "shop"},
		"provider": {Addr: server.Addr(), CredentialsProvider: name},
		"provider with a context": {
			Addr: server.Addr(),
			CredentialsProviderContext: func(context.Context) (string, string, error) {
				username, password := name()
				return username, password, nil
			},
		},
	} {
		t.Run(what, func(t *testing.T) { locks(t, o, redis.NewClient(o)) })
	}
}

// changes are ways to name the server and the user. What is asked for is counted.
func changes(
	t *testing.T, server *testredis.Server, socket string, asked *atomic.Int64,
) map[string]func(o *redis.Options) {
	return map[string]func(o *redis.Options){
		"name and password": func(*redis.Options) {},
		"password alone":    func(o *redis.Options) { o.Username, o.Password = "", "other" },
		"RESP2":             func(o *redis.Options) { o.Protocol = 2 },
		"a socket":          func(o *redis.Options) { o.Network, o.Addr = "unix", socket },
		"a socket's path":   func(o *redis.Options) { o.Addr = socket },
		"a dialer": func(o *redis.Options) {
			o.Addr = "the one"
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				require.Equal(t, "the one", addr)
				asked.Add(1)
				return new(net.Dialer).DialContext(ctx, network, server.Addr())
			}
		},
		"a provider": func(o *redis.Options) {
			o.Username, o.Password = "nobody", "wrong"
			o.CredentialsProvider = func() (string, string) { asked.Add(1); return "ann", "secret" }
		},
		"a provider with a context": func(o *redis.Options) {
			o.CredentialsProvider = func() (string, string) { return "nobody", "wrong" }
			o.CredentialsProviderContext = func(ctx context.Context) (string, string, error) {
				asked.Add(1)
				return "ann", "secret", ctx.Err()
			}
		},
		"a streaming provider": func(o *redis.Options) {
			o.StreamingCredentialsProvider = &provider{asked: asked}
		},
	}
}

// provider is a streaming provider of credentials, which counts its subscriptions.
type provider struct {
	asked      *atomic.Int64
	subscribed atomic.Int64
	err        error
}

func (p *provider) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	if p.err != nil {
		return nil, nil, p.err
	}
	p.asked.Add(1)
	p.subscribed.Add(1)
	unsubscribe := func() error { p.subscribed.Add(-1); return nil }
	return auth.NewBasicCredentials("ann", "secret"), unsubscribe, nil
}

// A streaming provider is asked for the newest value each minute, and keeps no subscription.
func TestAStreamingProviderIsAskedAgain(t *testing.T) {
	p := &provider{asked: new(atomic.Int64)}
	_, base, _, err := goredisconf.From(&redis.Options{StreamingCredentialsProvider: p})
	require.NoError(t, err)
	require.Zero(t, p.asked.Load())
	got := expect.NoError(base.AuthCredentialsFn(rueidis.AuthCredentialsContext{})).In(t)
	require.Equal(t, "ann", got.Username)
	require.Equal(t, "secret", got.Password)
	require.WithinDuration(t, time.Now().Add(time.Minute), got.RefreshAfter, 10*time.Second)
	require.Zero(t, p.subscribed.Load())
}

func TestOptionsOverTLS(t *testing.T) {
	server := testredis.StartTLS(t, testredis.Binaries()[0])
	config := server.Option().TLSConfig
	o := &redis.Options{Addr: server.TLSAddr(), TLSConfig: config}
	_, base, _, err := goredisconf.From(o)
	require.NoError(t, err)
	require.NotSame(t, config, base.TLSConfig)
	locks(t, o, redis.NewClient(o))

	// A dialer of go-redis does TLS itself, also the one that its client has filled in.
	made := redis.NewClient(o)
	locks(t, made.Options(), redis.NewClient(o))
	require.NoError(t, made.Close())
	own := &redis.Options{
		Addr: server.TLSAddr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&tls.Dialer{Config: config}).DialContext(ctx, network, addr)
		},
	}
	locks(t, own, redis.NewClient(o))
}

func TestClusterOptions(t *testing.T) {
	cluster := testredis.StartCluster(t, testredis.Binaries()[0], 0)
	addrs := cluster.Option().InitAddress
	for range 20 {
		addrs = append(addrs, cluster.Masters()[1].Addr())
	}
	o := redis.ClusterOptions{Addrs: addrs, ReadOnly: true, RouteRandomly: true, MaxRedirects: 5}
	there := o // go-redis writes its defaults into the options of a Cluster
	require.Equal(t, []string{"MaxRedirects", "ReadOnly", "RouteRandomly"}, locks(t, &o, redis.NewClusterClient(&there)))
	require.Equal(t, []string{"MaxRedirects", "ReadOnly", "RouteRandomly"}, locks(t, &there, redis.NewClusterClient(&o)))
	u := &redis.UniversalOptions{Addrs: addrs[:1], IsClusterMode: true}
	require.Empty(t, locks(t, u, redis.NewUniversalClient(u)))
	u = &redis.UniversalOptions{Addrs: addrs}
	require.Empty(t, locks(t, u, redis.NewUniversalClient(u)))
}

func TestFailoverOptions(t *testing.T) {
	sentinel := testredis.StartSentinel(t, testredis.Binaries()[0])
	option := sentinel.Option()
	var providers atomic.Int64
	o := &redis.FailoverOptions{
		MasterName: option.Sentinel.MasterSet, SentinelAddrs: option.InitAddress, DialTimeout: time.Minute, DB: 2,
		SentinelUsername: "sue", SentinelPassword: "watch",
	}
	for _, s := range sentinel.Sentinels() {
		expect.NoError(s.Command("ACL", "SETUSER", "sue", "on", ">watch", "~*", "&*", "+@all")).In(t)
	}
	require.Empty(t, locks(t, o, redis.NewFailoverClient(o)))
	u := &redis.UniversalOptions{
		MasterName: o.MasterName, Addrs: o.SentinelAddrs, SentinelUsername: "sue", SentinelPassword: "watch", DB: 2,
	}
	require.Empty(t, locks(t, u, redis.NewUniversalClient(u)))

	// The credentials of the master are not for the sentinels, which do not know them.
	expect.NoError(sentinel.Command("ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all")).In(t)
	there := redis.NewFailoverClient(o)
	for name, dialer := range map[string]func(ctx context.Context, network, addr string) (net.Conn, error){
		"the client's dialer": nil,
		"a dialer":            new(net.Dialer).DialContext,
	} {
		with := *o
		with.Dialer = dialer
		with.CredentialsProvider = func() (string, string) { providers.Add(1); return "ann", "secret" }
		providers.Store(0)
		addr, base, _, err := goredisconf.From(&with)
		require.NoError(t, err)
		client := expect.NoError(rwlock.Dial(addr, base)).In(t, name)
		who := expect.NoError(client.Do(t.Context(), client.B().Arbitrary("ACL", "WHOAMI").Build()).ToString()).In(t)
		require.Equal(t, "ann", who)
		require.Positive(t, providers.Load())
		client.Close()
	}

	// What a failover client says of itself leads nowhere.
	_, _, _, err := goredisconf.From(there.Options())
	require.ErrorIs(t, err, rwlock.ErrOption)
	require.ErrorContains(t, err, "FailoverOptions")
	require.NoError(t, there.Close())
}

func TestRefusedOptions(t *testing.T) {
	for name, refused := range map[string]func() error{
		"nil":              func() error { return errorOf((*redis.Options)(nil)) },
		"nil of a cluster": func() error { return errorOf((*redis.ClusterOptions)(nil)) },
		"no node":          func() error { return errorOf(&redis.ClusterOptions{}) },
		"slots by hand": func() error {
			return errorOf(&redis.ClusterOptions{
				Addrs:        []string{"a:1"},
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return nil, nil },
			})
		},
		"no master":         func() error { return errorOf(&redis.FailoverOptions{SentinelAddrs: []string{"a:1"}}) },
		"no sentinel":       func() error { return errorOf(&redis.FailoverOptions{MasterName: "m"}) },
		"nil universal":     func() error { return errorOf((*redis.UniversalOptions)(nil)) },
		"a failover client": func() error { return errorOf(&redis.Options{Addr: "FailoverClient"}) },
	} {
		require.ErrorIs(t, refused(), rwlock.ErrOption, name)
	}
	addr, _, _, err := goredisconf.From(&redis.Options{})
	require.NoError(t, err)
	require.Equal(t, "localhost:6379", addr, "as go-redis has it")
}

func errorOf[O goredisconf.Options](o O) error {
	_, _, _, err := goredisconf.From(o)
	return err
}

// Every field of go-redis is taken over, or is named. Options are not changed.
func TestWhatIsIgnoredIsNamed(t *testing.T) {
	o := redis.UniversalOptions{
		PoolSize: 3, MaxRetries: -1, OnConnect: func(context.Context, *redis.Conn) error { return nil },
	}
	_, base, ignored, err := goredisconf.From(&o)
	require.NoError(t, err)
	require.Equal(t, []string{"OnConnect", "MaxRetries", "PoolSize"}, ignored)
	require.Nil(t, o.Addrs)
	require.Nil(t, base.DialCtxFn)

	_, base, ignored, err = goredisconf.From(&redis.Options{
		DisableIdentity: true, ConnMaxLifetime: time.Hour, DialTimeout: 3 * time.Second, ClientName: "shop", Protocol: 3,
	})
	require.NoError(t, err)
	require.Empty(t, ignored)
	require.NotNil(t, base.ClientSetInfo)
	require.Equal(t, time.Hour, base.ConnLifetime)
	require.Equal(t, 3*time.Second, base.Dialer.Timeout)
	require.Equal(t, "shop", base.ClientName)
	require.False(t, base.AlwaysRESP2)
}

// A dialer that does not look at its context cannot be bounded; one that does is, by the timeout of the dial.
func TestADialerHasTheTimeoutOfTheDial(t *testing.T) {
	addr, base, _, err := goredisconf.From(&redis.Options{
		Addr: "nowhere", DialTimeout: 20 * time.Millisecond,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	require.NoError(t, err)
	client, err := rwlock.Dial(addr, base) // it would wait for ever
	require.NoError(t, err)
	client.Close()
}
