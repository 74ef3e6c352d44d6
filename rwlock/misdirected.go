package rwlock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// misdirected returns why the client of one server must not be used, where that server is none that decides alone. It
// returns nil also where the server does not tell: a proxy, a user without the right to HELLO, a server that is down.
// What Redis itself would refuse later is told early; nothing depends on it.
func misdirected(client rueidis.Client, addr string, limit time.Duration) error {
	if client.Mode() != rueidis.ClientModeStandalone {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	told, err := client.Do(ctx, client.B().Arbitrary("HELLO").Build()).AsMap()
	if err != nil {
		return nil
	}
	mode := told["mode"]
	switch kind, _ := mode.ToString(); kind {
	case "cluster":
		return &OptionError{"addr", addr, "is a node of a Cluster: leave addr empty and name the node in base.InitAddress, " +
			"with a user that may run CLUSTER SLOTS and CLUSTER SHARDS"}
	case "sentinel":
		return &OptionError{"addr", addr, "is a sentinel: leave addr empty, name the sentinels in base.InitAddress and the " +
			"master that they watch in base.Sentinel.MasterSet"}
	default:
		return nil
	}
}

// misnamed returns why a client without an address of its own cannot be had, where the servers that the options name
// say by a refusal that they are of another kind. It returns nil for any other error.
func misnamed(addrs []string, err error) error {
	refusal, ok := errors.AsType[*rueidis.RedisError](err)
	if !ok {
		return nil
	}
	refused := func(rule string) error { return &OptionError{"base.InitAddress", addrs, rule} }
	switch text := strings.ToLower(refusal.Error()); {
	case strings.Contains(text, "cluster support disabled"):
		return refused("names servers that are no Cluster: give one server as the address of Dial, and several that are " +
			"to decide together to redlock.Dial")
	case strings.Contains(text, "unknown command 'cluster'"):
		return refused("names servers that are no Cluster: for sentinels name the master that they watch in " +
			"base.Sentinel.MasterSet")
	case strings.Contains(text, "unknown command 'sentinel'"):
		return refused("names servers that are no sentinels: leave base.Sentinel.MasterSet empty")
	default:
		return nil
	}
}
