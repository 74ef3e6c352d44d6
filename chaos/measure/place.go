//go:build unix

package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/chaos/peer"
	"github.com/seed74116694/fencelock/internal/test/harness"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// place is a form in which servers are run.
type place struct {
	name  string
	start func(t testing.TB, binary string) testredis.Deployment
}

func places() []place {
	return []place{
		{"standalone", func(t testing.TB, binary string) testredis.Deployment {
			return testredis.StartBinary(t, binary)
		}},
		{"Sentinel", func(t testing.TB, binary string) testredis.Deployment {
			return testredis.StartSentinel(t, binary)
		}},
		{"Cluster", func(t testing.TB, binary string) testredis.Deployment {
			return testredis.StartCluster(t, binary, 1)
		}},
	}
}

// takeLimit bounds the acquisition of the leases that are only kept: no other client wants them.
const takeLimit = 20 * time.Second

// keep takes locks of one client, to be kept until the client is closed. It returns an error if the library does not
// get them.
func keep(ctx context.Context, p peer.Peer, names []string) (*keeper, error) {
	ctx, giveUp := context.WithCancel(ctx) // later on too, some libraries end holds with it
	timer := time.AfterFunc(takeLimit, giveUp)
	k := &keeper{peer: p, names: names, holds: make([]peer.Hold, len(names))}
	err := k.take(ctx)
	if !timer.Stop() && err == nil {
		err = context.Canceled
	}
	return k, err
}

// deployable are the libraries that support Sentinel and Cluster.
func deployable() []peer.Library { return append(peer.Named(peer.Ours), peer.AsIs()) }

// withTTL returns the library with another TTL.
func withTTL(lib peer.Library, ttl time.Duration) peer.Library {
	open := lib.Open
	lib.Open = func(o peer.Options) (peer.Peer, error) {
		o.TTL = ttl
		return open(o)
	}
	return lib
}

// settle is how long a crowd works before the measurement begins.
const settle = time.Second

// staged calls play with several clients of a library in servers of their own.
func (s *site) staged(
	ctx context.Context, start func(t testing.TB) testredis.Deployment, lib peer.Library, clients int,
	play func(t testing.TB, d testredis.Deployment, all []peer.Peer) (Measures, error),
) (m Measures, err error) {
	err = harness.Run(ctx, func(t testing.TB) (err error) {
		d := start(t)
		options := peer.Options{At: d.Option(), TTL: peer.TTL, ClientName: "bench"}
		if one, ok := d.(*testredis.Server); ok {
			options.Addrs = []string{one.Addr()}
		}
		var all []peer.Peer
		defer func() {
			for _, p := range all {
				err = errors.Join(err, p.Close())
			}
		}()
		for range clients {
			p, err := lib.Open(options)
			if err != nil {
				return err
			}
			all = append(all, p)
		}
		m, err = play(t, d, all)
		return err
	})
	return m, err
}
