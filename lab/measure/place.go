//go:build unix

package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/harness"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/peer"
)

// deployable are the libraries that support Sentinel and Cluster.
func deployable() []peer.Library { return append(peer.Named(peer.Ours), peer.AsIs()) }

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
