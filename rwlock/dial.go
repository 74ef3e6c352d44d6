package rwlock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/transport"
)

// Dial returns a client that is tuned for locks; the other fields of base are kept. All callers send their commands in
// one pipeline over one connection, so a release never overtakes the acquire that it ends. There is no client-side
// cache, and a server that hangs is noticed within seconds. Do not use the client for commands that block, such as
// BLPOP: they would break their connection.
//
// addr is the address of one server, and replaces base.InitAddress. For Sentinel and Cluster leave it empty and use
// base. Addresses and options that do not fit are an *OptionError.
//
// Dial waits at most base.Dialer.Timeout per address, one second by default. If the server at addr does not answer or
// refuses the connection, the client connects once it is accepted, and its calls fail with the cause until then.
// Without addr at least one node has to answer: else the error is a *QuorumError. With every error the client is nil.
func Dial(addr string, base rueidis.ClientOption) (rueidis.Client, error) {
	if option, value, rule := transport.BaseRule(addr != "", base); rule != "" {
		return nil, &OptionError{option, value, rule}
	}
	switch {
	case addr == "" && len(base.InitAddress) == 0:
		return nil, &OptionError{"Dial", addr, "neither addr nor base.InitAddress names a server"}
	case addr != "":
		if rule := transport.AddressRule(addr, base); rule != "" {
			return nil, &OptionError{"Dial", transport.Shown(addr), rule}
		}
		base.InitAddress = []string{addr}
		base.ForceSingleClient = true
	default:
		for _, server := range base.InitAddress {
			if rule := transport.AddressRule(server, base); rule != "" {
				return nil, &OptionError{"base.InitAddress", transport.Shown(server), rule}
			}
		}
	}
	option := transport.Tuned(base)
	client, err := transport.Dial(option)
	if client == nil {
		if rule := transport.AddressesRule(err); rule != "" {
			return nil, &OptionError{"base.InitAddress", base.InitAddress, rule}
		}
		cause := namingLimit(err, option)
		return nil, &QuorumError{Need: 1, Nodes: []NodeError{{Addr: strings.Join(base.InitAddress, ","), Err: cause}}}
	}
	if err == nil {
		if rule := transport.ServerRule(client, option.Dialer.Timeout); rule != "" {
			client.Close()
			return nil, &OptionError{"addr", base.InitAddress[0], rule}
		}
	}
	return client, nil
}

// namingLimit returns the reason why the client has no connection. The error of a dial that took too long does not name
// its limit.
func namingLimit(err error, o rueidis.ClientOption) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	limit, option := o.Dialer.Timeout, "base.Dialer.Timeout"
	if o.Sentinel.MasterSet != "" && o.Sentinel.Dialer.Timeout != limit {
		limit, option = max(limit, o.Sentinel.Dialer.Timeout), option+" and base.Sentinel.Dialer.Timeout"
	}
	return fmt.Errorf("%w, the limit of %s", &NoReplyError{After: limit}, option)
}

// Open returns a Locker with a client of its own, made as by Dial; Close closes both. addr is host:port, or a URL as
// REDIS_URL often has it: redis://, rediss:// or unix://, with the parameters of rueidis.ParseURL, redis-cluster:// and
// redis-sentinel://. With rediss:// each server has a certificate for its own name, sentinels too. Errors quote no
// URL, because of its password.
// The server need not answer yet: Ping says whether it does, and until then a Lock waits, and the logger is told why.
// An addr or an option that breaks a rule is an *OptionError. For a Cluster or sentinels none of which answers, the
// error is a *QuorumError.
func Open(addr string, opts ...Option) (*Locker, error) {
	servers, rule := transport.ReadAddress(addr, "")
	one := ""
	switch {
	case rule != "":
	case servers.IsOneServer():
		one = servers.Option.InitAddress[0]
	case !servers.Cluster && !servers.IsSentinel():
		rule = "names several servers that decide together, which redlock.Open takes; a Cluster is redis-cluster://"
	}
	if rule != "" {
		return nil, &OptionError{"Open", "addr", rule}
	}
	client, err := Dial(one, servers.Option)
	if err != nil {
		return nil, err
	}
	locker, err := New(client, append([]Option{settings.Owned}, opts...)...)
	if err != nil {
		client.Close()
		return nil, err
	}
	return locker, nil
}

// Wrap returns a client that sends everything through with(client), such as a client of rueidishook or rueidisotel, and
// is as tuned for locks as client, which must be from Dial or redlock.Dial. To close it is to close both. An argument
// that breaks a rule, or a nil client from with, is an *OptionError, and client stays as it was.
//
// What with adds runs on the goroutines that send and renew. While it blocks, locks wait and leases are not renewed, so
// it must be quick and must not call the locker. It must send each command once, unchanged and in order, over client.
//
// The context of a command has the values of the call that it is for, where that call sends it itself: to one server,
// with few others under way. A command for several calls, and what the locker sends later, has a context of the locker.
func Wrap(client rueidis.Client, with func(rueidis.Client) rueidis.Client) (rueidis.Client, error) {
	if !transport.IsTuned(client) {
		return nil, &OptionError{"client", fmt.Sprintf("%T", client), "must be from Dial"}
	}
	if with == nil {
		return nil, &OptionError{"with", "nil", "must be a function"}
	}
	outer := with(client)
	if outer == nil {
		return nil, &OptionError{"with", "nil client", "must return a client"}
	}
	return transport.Wrap(client, outer), nil
}
