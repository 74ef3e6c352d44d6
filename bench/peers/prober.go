//go:build unix

package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/testredis"
)

// probeEvery is how often each server is asked to write.
const probeEvery = 2 * time.Millisecond

// prober writes a key to every server of a deployment, again and again: what nobody writes then, no lock can be in.
type prober struct {
	end     context.CancelFunc
	probing sync.WaitGroup
	mu      sync.Mutex
	written []time.Duration
}

func probe(ctx context.Context, nodes []*testredis.Server, key string, now func() time.Duration) *prober {
	p := &prober{}
	ctx, p.end = context.WithCancel(ctx)
	for _, node := range nodes {
		p.probing.Go(func() {
			for ; ctx.Err() == nil; pause(ctx, probeEvery) {
				if _, err := node.Command("SET", key, ""); err == nil {
					p.wrote(now())
				}
			}
		})
	}
	return p
}

func (p *prober) wrote(at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = append(p.written, at)
}

// stop returns when any server has taken the key, in ascending order.
func (p *prober) stop() []time.Duration {
	p.end()
	p.probing.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.written)
	return p.written
}
