package rwlock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// misdirected returns the reason why the client must not be used: its one server does not decide alone. It returns nil
// also if the server does not report its mode: a proxy, a user without the right to HELLO, a server that is down. The
// check only reports early what Redis itself would refuse later; nothing depends on it.
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

// misnamed returns the reason why no client without an own address is possible, if a refusal shows that the servers in
// the options are of another kind. It returns nil for any other error.
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
