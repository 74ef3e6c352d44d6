// Package valkeyconf turns the options of a valkey-go client into the options of a client for locks, as package
// goredisconf does for go-redis.
package valkeyconf

import (
	"reflect"
	"slices"

	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/rwlock/goredisconf/internal/opening"
)

// Open returns a Locker with a client of its own for the server of these options, as [rwlock.Open] does for an address;
// Close closes both. It takes over what [From] does, and logs the options that are ignored by the logger of the locker,
// at level Info. The errors are the errors of From, rwlock.Dial and rwlock.New.
func Open(options valkey.ClientOption, opts ...rwlock.Option) (*rwlock.Locker, error) {
	addr, base, ignored, err := From(options)
	if err != nil {
		return nil, err
	}
	return opening.Open("valkey-go", addr, base, ignored, opts)
}

// From returns the arguments of rwlock.Dial for the server of these options.
//
// It takes over the addresses, the DB, the names and passwords of the server and of Sentinel, the function for
// credentials, the TLS configurations (copies), the dialers and dial functions, ClientName, ClientSetInfo,
// ConnWriteTimeout, ConnLifetime, the options of Sentinel and of a Cluster, AlwaysRESP2, ClientNoTouch, ClientNoEvict
// and DisableTCPNoDelay. With ForceSingleClient addr is the first address; else it is empty, and the client finds out
// which kind of servers the addresses are, as valkey-go does.
//
// ignored names the fields that are set and are not taken over, in their order: replicas and how they are chosen,
// caches, pools and retries, which a client for locks does not have. The error is an *rwlock.OptionError: for options
// without an address.
func From(o valkey.ClientOption) (addr string, base rueidis.ClientOption, ignored []string, err error) {
	if len(o.InitAddress) == 0 {
		return "", base, nil, &rwlock.OptionError{
			Option: "InitAddress", Value: o.InitAddress, Rule: "must name a server",
		}
	}
	base = rueidis.ClientOption{
		TLSConfig: o.TLSConfig.Clone(), DialFn: o.DialFn, DialCtxFn: o.DialCtxFn, Dialer: o.Dialer,
		InitAddress: slices.Clone(o.InitAddress), ShuffleInit: o.ShuffleInit,
		Username: o.Username, Password: o.Password, SelectDB: o.SelectDB,
		ClientName: o.ClientName, ClientSetInfo: slices.Clone(o.ClientSetInfo),
		Sentinel: rueidis.SentinelOption(o.Sentinel), ClusterOption: rueidis.ClusterOption(o.ClusterOption),
		ConnWriteTimeout: o.ConnWriteTimeout, ConnLifetime: o.ConnLifetime,
		AlwaysRESP2: o.AlwaysRESP2, ClientNoTouch: o.ClientNoTouch, ClientNoEvict: o.ClientNoEvict,
		DisableTCPNoDelay: o.DisableTCPNoDelay,
	}
	base.Sentinel.TLSConfig = o.Sentinel.TLSConfig.Clone()
	if ask := o.AuthCredentialsFn; ask != nil {
		base.AuthCredentialsFn = func(to rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			c, err := ask(valkey.AuthCredentialsContext(to))
			return rueidis.AuthCredentials(c), err
		}
	}
	if o.ForceSingleClient && o.Sentinel.MasterSet == "" {
		addr, base.InitAddress = o.InitAddress[0], nil
	}
	return addr, base, notTaken(reflect.ValueOf(o)), nil
}

// taken are the fields that From takes over.
var taken = []string{
	"TLSConfig", "DialFn", "DialCtxFn", "Dialer", "InitAddress", "ShuffleInit", "Username", "Password", "SelectDB",
	"AuthCredentialsFn", "ClientName", "ClientSetInfo", "Sentinel", "ClusterOption", "ConnWriteTimeout", "ConnLifetime",
	"AlwaysRESP2", "ClientNoTouch", "ClientNoEvict", "DisableTCPNoDelay", "ForceSingleClient",
}

// notTaken returns the other fields that are set, also those of a later version of valkey-go.
func notTaken(options reflect.Value) (names []string) {
	for i := range options.NumField() {
		if field := options.Type().Field(i); !options.Field(i).IsZero() && !slices.Contains(taken, field.Name) {
			names = append(names, field.Name)
		}
	}
	return names
}
