package redlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// What New would refuse is refused before anybody is dialled: no client is left open.
func TestDialChecksTheAddressesFirst(t *testing.T) {
	var dialled atomic.Int64
	option := rueidis.ClientOption{
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			dialled.Add(1)
			return nil, errors.New("dialled")
		},
		InitAddress: []string{"base:6379"},
	}
	for rule, refused := range map[string][][]string{
		"odd number of at least 3": {nil, {"a:1"}, {"a:1", "b:1"}, {"a:1", "b:1", "c:1", "d:1"}},
		"the same":                 {{"a:1", "b:1", "a:1"}, {"a:1", "b:1", "c:1", "d:1", "d:1"}},
		"must not be empty":        {{"a:1", "", "c:1"}},
		"no URL":                   {{"a:1", "b:1", "redis://c:1"}},
		"must be host:port":        {{"127.0.0.1:1", "127.0.0.1:2", "localhost"}},
	} {
		for _, addrs := range refused {
			base := option
			if rule == "must be host:port" {
				base.DialCtxFn = nil
			}
			clients, err := redlock.Dial(addrs, base)
			require.Nil(t, clients)
			wrong, ok := err.(*rwlock.OptionError)
			require.True(t, ok, "%q: %v", addrs, err)
			require.Equal(t, "addrs", wrong.Option)
			require.Contains(t, wrong.Rule, rule)
		}
	}
	option.ReplicaOnly = true
	clients, err := redlock.Dial([]string{"a:1", "b:1", "c:1"}, option)
	require.Nil(t, clients)
	require.ErrorContains(t, err, "base.ReplicaOnly")
	require.ErrorIs(t, err, rwlock.ErrOption)
	require.Zero(t, dialled.Load())
}
