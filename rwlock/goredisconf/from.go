// Package goredisconf turns the options of a go-redis client into the options of a client for locks, so that a service
// that has its Redis configured once can take locks there too. Package valkeyconf does so for valkey-go. They are a
// separate module, so that only their users depend on these clients.
//
//	locker, err := goredisconf.Open(rdb.Options())
//
// Only the options are read. The client for locks has connections of its own, and shares nothing with the client of
// go-redis.
package goredisconf

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/rwlock/goredisconf/internal/opening"
)

// Options are the options of go-redis that lead to one master for each name. The options of a Ring do not: its servers
// decide alone, and names move to another server when a server is down. For several servers that decide together see
// redlock.Dial.
type Options interface {
	*redis.Options | *redis.ClusterOptions | *redis.FailoverOptions | *redis.UniversalOptions
}

// Open returns a Locker with a client of its own for the Redis of these options, as [rwlock.Open] does for an address;
// Close closes both. It takes over what [From] does, and logs the options that are ignored by the logger of the
// locker, at level Info. The errors are the errors of From, rwlock.Dial and rwlock.New.
func Open[O Options](options O, opts ...rwlock.Option) (*rwlock.Locker, error) {
	addr, base, ignored, err := From(options)
	if err != nil {
		return nil, err
	}
	return opening.Open("go-redis", addr, base, ignored, opts)
}

// From returns the arguments of rwlock.Dial for the Redis of these options, which it does not change. The options that
// the method Options of a client returns are good too.
//
// It takes over the addresses, the DB, the names and passwords of Redis and of Sentinel, the TLS configuration (a
// copy), ClientName, DisableIdentity, DialTimeout, Protocol 2, ConnMaxLifetime and Dialer. As with go-redis, a name
// without a password is not sent. Providers of credentials are asked at each connection. A streaming provider is also
// asked once a minute while a connection lasts.
//
// ignored names the fields that are set, not to their default, and are not taken over, in their order: a client for
// locks has one connection to each server and sends nothing to replicas, so limits of pools, retries, routes, hooks and
// caches have no meaning there. If DialTimeout is 0, the timeout of rwlock.Dial applies.
//
// The error is an *rwlock.OptionError: for nil, for options without a server or a master's name, for the Options of a
// failover client (their master is hidden in the dialer: give the FailoverOptions), and for ClusterSlots, which hides
// the servers as well.
func From[O Options](options O) (addr string, base rueidis.ClientOption, ignored []string, err error) {
	if reflect.ValueOf(options).IsNil() {
		return "", base, nil, refused("options", "nil", "must not be nil")
	}
	switch o := any(options).(type) {
	case *redis.Options:
		addr, base, err = simple(o)
	case *redis.ClusterOptions:
		base, err = cluster(o)
	case *redis.FailoverOptions:
		base, err = failover(o)
	case *redis.UniversalOptions:
		addr, base, err = universal(*o)
	}
	if err != nil {
		return "", rueidis.ClientOption{}, nil, err
	}
	return addr, base, notTaken(options), nil
}

func refused(option string, value any, rule string) error {
	return &rwlock.OptionError{Option: option, Value: value, Rule: rule}
}

// taken are the fields that From takes over, or that repeat such a field.
var taken = []string{
	"Network", "Addr", "Addrs", "NodeAddress", "SentinelAddrs", "MasterName", "IsClusterMode", "DB",
	"Username", "Password", "SentinelUsername", "SentinelPassword",
	"CredentialsProvider", "CredentialsProviderContext", "StreamingCredentialsProvider",
	"TLSConfig", "ClientName", "DisableIdentity", "DialTimeout", "Protocol", "ConnMaxLifetime",
	"Dialer",
}

// notTaken returns the other fields that are set. It reads the fields from the type, so that a field of a later version
// of go-redis is named too. The options of a client have all defaults set: what is a default is not named.
func notTaken(options any) (names []string) {
	set, usual := reflect.ValueOf(options).Elem(), defaults(options)
	for i := range set.NumField() {
		field := set.Type().Field(i)
		if field.IsExported() && !set.Field(i).IsZero() && !slices.Contains(taken, field.Name) &&
			!same(set.Field(i), usual.Field(i)) {
			names = append(names, field.Name)
		}
	}
	return names
}

// defaults returns the options that a client has if only what is taken over is given. Such a client does not connect.
func defaults(options any) reflect.Value {
	set := reflect.ValueOf(options).Elem()
	usual := reflect.New(set.Type())
	for _, name := range taken {
		if field := usual.Elem().FieldByName(name); field.IsValid() {
			field.Set(set.FieldByName(name))
		}
	}
	switch o := usual.Interface().(type) {
	case *redis.Options:
		client := redis.NewClient(o)
		defer func() { _ = client.Close() }()
		return reflect.ValueOf(client.Options()).Elem()
	case *redis.ClusterOptions:
		client := redis.NewClusterClient(o)
		defer func() { _ = client.Close() }()
		return reflect.ValueOf(client.Options()).Elem()
	default: // no client returns these
		return reflect.Zero(set.Type())
	}
}

// same compares two values of a field. Functions are the same if they have the same code, and what each client makes
// for itself if it has the same type.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Func:
		return a.Pointer() == b.Pointer()
	case reflect.Interface:
		return !b.IsNil() && a.Elem().Type() == b.Elem().Type()
	default:
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
}

// common are the options that all clients of go-redis have.
type common struct {
	network, clientName   string
	username, password    string
	provider              func() (username, password string)
	providerContext       func(context.Context) (username, password string, err error)
	streaming             auth.StreamingCredentialsProvider
	db, protocol          int
	dialTimeout, lifetime time.Duration
	tls                   *tls.Config
	dialer                func(ctx context.Context, network, addr string) (net.Conn, error)
	noIdentity            bool // DisableIdentity
}

// hiddenMaster is the address in the options of a failover client.
const hiddenMaster = "FailoverClient"

func simple(o *redis.Options) (addr string, base rueidis.ClientOption, err error) {
	c := common{
		o.Network, o.ClientName, o.Username, o.Password, o.CredentialsProvider, o.CredentialsProviderContext,
		o.StreamingCredentialsProvider, o.DB, o.Protocol, o.DialTimeout, o.ConnMaxLifetime, o.TLSConfig, o.Dialer,
		o.DisableIdentity,
	}
	switch addr = o.Addr; {
	case addr == hiddenMaster:
		return "", base, refused("Addr", addr, "is of a failover client, whose dialer hides its master: "+
			"give the FailoverOptions that the client was made with")
	case addr == "":
		addr = "localhost:6379" // as go-redis has it
	}
	if c.network == "" && strings.HasPrefix(addr, "/") {
		c.network = "unix"
	}
	return addr, c.base(), nil
}

func cluster(o *redis.ClusterOptions) (base rueidis.ClientOption, err error) {
	c := common{
		"", o.ClientName, o.Username, o.Password, o.CredentialsProvider, o.CredentialsProviderContext,
		o.StreamingCredentialsProvider, 0, o.Protocol, o.DialTimeout, o.ConnMaxLifetime, o.TLSConfig, o.Dialer,
		o.DisableIdentity,
	}
	switch {
	case o.ClusterSlots != nil:
		return base, refused("ClusterSlots", "a function", "must be nil: it hides which servers there are")
	case len(o.Addrs) == 0:
		return base, refused("Addrs", o.Addrs, "must name a node of the Cluster")
	}
	base = c.base()
	base.InitAddress = slices.Clone(o.Addrs)
	return base, nil
}

func failover(o *redis.FailoverOptions) (base rueidis.ClientOption, err error) {
	c := common{
		"", o.ClientName, o.Username, o.Password, o.CredentialsProvider, o.CredentialsProviderContext,
		o.StreamingCredentialsProvider, o.DB, o.Protocol, o.DialTimeout, o.ConnMaxLifetime, o.TLSConfig, o.Dialer,
		o.DisableIdentity,
	}
	switch {
	case o.MasterName == "":
		return base, refused("MasterName", `""`, "must name the master that the sentinels watch")
	case len(o.SentinelAddrs) == 0:
		return base, refused("SentinelAddrs", o.SentinelAddrs, "must name a sentinel")
	}
	base = c.base()
	base.InitAddress = slices.Clone(o.SentinelAddrs)
	sentinels := login(o.SentinelUsername, o.SentinelPassword)
	base.Sentinel = rueidis.SentinelOption{
		MasterSet: o.MasterName, Username: sentinels.Username, Password: sentinels.Password, ClientName: o.ClientName,
		TLSConfig: o.TLSConfig.Clone(), Dialer: net.Dialer{Timeout: o.DialTimeout},
	}
	if base.AuthCredentialsFn != nil {
		separateSentinels(&base)
	}
	return base, nil
}

// universal reads the options as redis.NewUniversalClient does. It has a copy: go-redis writes defaults into them.
func universal(o redis.UniversalOptions) (addr string, base rueidis.ClientOption, err error) {
	switch {
	case o.MasterName != "":
		base, err = failover(o.Failover())
		return "", base, err
	case len(o.Addrs) > 1 || o.IsClusterMode:
		base, err = cluster(o.Cluster())
		return "", base, err
	default:
		return simple(o.Simple())
	}
}

// base returns the options of a client without its addresses.
func (c *common) base() rueidis.ClientOption {
	user := login(c.username, c.password)
	base := rueidis.ClientOption{
		Username: user.Username, Password: user.Password, ClientName: c.clientName, SelectDB: c.db,
		AlwaysRESP2: c.protocol == 2, ConnLifetime: max(c.lifetime, 0), TLSConfig: c.tls.Clone(),
		Dialer: net.Dialer{Timeout: c.dialTimeout}, DialCtxFn: c.dial(), AuthCredentialsFn: c.credentials(),
	}
	if c.noIdentity {
		base.ClientSetInfo = rueidis.DisableClientSetInfo
	}
	return base
}

// login returns the credentials that go-redis sends: a name without a password is not sent.
func login(username, password string) rueidis.AuthCredentials {
	if password == "" {
		return rueidis.AuthCredentials{}
	}
	return rueidis.AuthCredentials{Username: username, Password: password}
}

// dial returns how connections are made, or nil if the client's own way will do. A Dialer of go-redis does TLS itself.
// The client has no limit for a dial function, so the limit of the dialer is applied here.
func (c *common) dial() func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	network, custom := c.network, c.dialer
	if network == "" {
		network = "tcp"
	}
	switch {
	case custom != nil:
		return func(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if dialer.Timeout > 0 {
				within, cancel := context.WithTimeout(ctx, dialer.Timeout)
				defer cancel()
				ctx = within
			}
			return custom(ctx, network, addr)
		}
	case network != "tcp":
		return func(ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
			return connect(ctx, network, addr, dialer, config)
		}
	}
	return nil
}

// connect is what the client does without a dial function, over any network.
func connect(
	ctx context.Context, network, addr string, dialer *net.Dialer, config *tls.Config,
) (net.Conn, error) {
	if config == nil {
		return dialer.DialContext(ctx, network, addr)
	}
	return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, addr)
}

const (
	// askAgain is how often a streaming provider is asked while a connection lasts.
	askAgain = time.Minute
	// defaultDialTimeout is the default of go-redis, which bounds its providers too.
	defaultDialTimeout = 5 * time.Second
)

// credentials returns the first provider in the order in which go-redis looks for one, or nil.
func (c *common) credentials() func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
	streaming, providerContext, provider, limit := c.streaming, c.providerContext, c.provider, c.dialTimeout
	if limit <= 0 {
		limit = defaultDialTimeout
	}
	switch {
	case streaming != nil:
		return func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) { return newest(streaming) }
	case providerContext != nil:
		return func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			username, password, err := providerContext(ctx)
			return login(username, password), err
		}
	case provider != nil:
		return func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			return login(provider()), nil
		}
	}
	return nil
}

// newest asks a streaming provider. The subscription ends at once: the client has no end that could end it.
func newest(provider auth.StreamingCredentialsProvider) (rueidis.AuthCredentials, error) {
	credentials, unsubscribe, err := provider.Subscribe(&listener{})
	if err != nil {
		return rueidis.AuthCredentials{}, err
	}
	if unsubscribe != nil {
		if err := unsubscribe(); err != nil {
			return rueidis.AuthCredentials{}, err
		}
	}
	if credentials == nil {
		return rueidis.AuthCredentials{}, fmt.Errorf("goredisconf: %T gave no credentials", provider)
	}
	user := login(credentials.BasicAuth())
	user.RefreshAfter = time.Now().Add(askAgain)
	return user, nil
}

// listener needs no news. It is not empty, because a provider knows listeners by their addresses.
type listener struct{ _ byte }

func (*listener) OnNext(auth.Credentials) {}

func (*listener) OnError(error) {}

// separateSentinels has sentinels get their own name and password. The client asks the provider for these connections
// too, and go-redis does not. The provider is asked with the address of the connection, so a connection to a sentinel
// gets an address of its own type; the dialer shows which connections these are.
func separateSentinels(base *rueidis.ClientOption) {
	toSentinels := &net.Resolver{}
	base.Sentinel.Dialer.Resolver = toSentinels
	dial, master, own := base.DialCtxFn, base.AuthCredentialsFn, base.Sentinel
	base.DialCtxFn = func(
		ctx context.Context, addr string, dialer *net.Dialer, config *tls.Config,
	) (conn net.Conn, err error) {
		if dial != nil {
			conn, err = dial(ctx, addr, dialer, config)
		} else {
			conn, err = connect(ctx, "tcp", addr, dialer, config)
		}
		if err == nil && dialer.Resolver == toSentinels {
			conn = sentinelConn{conn}
		}
		return conn, err
	}
	base.AuthCredentialsFn = func(to rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		if _, ok := to.Address.(sentinelAddr); ok {
			return rueidis.AuthCredentials{Username: own.Username, Password: own.Password}, nil
		}
		return master(to)
	}
}

type sentinelConn struct{ net.Conn }

func (c sentinelConn) RemoteAddr() net.Addr { return sentinelAddr{c.Conn.RemoteAddr()} }

type sentinelAddr struct{ net.Addr }
