//go:build unix

package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/testredis"
)

// probeEvery is the interval of the writes to each server.
const probeEvery = 2 * time.Millisecond

// prober repeatedly writes a key to every server of a deployment: while no server accepts a write, none can grant a
// lock.
type prober struct {
	end     context.CancelFunc
	probing sync.WaitGroup
	mu      sync.Mutex
	written []write
}

// write is a SET that a server accepted.
type write struct {
	node int
	at   time.Duration
}

// twoMasters reports whether two servers accepted writes about that time: each grants locks that the other does not
// know of.
func twoMasters(written []write, about time.Duration) bool {
	node := -1
	for _, w := range written {
		if (w.at - about).Abs() > aboutThen {
			continue
		}
		if node >= 0 && w.node != node {
			return true
		}
		node = w.node
	}
	return false
}

// aboutThen bounds, for a busy machine, how long before a breach its holds can have been granted.
const aboutThen = 500 * time.Millisecond

// times returns the times of all accepted writes.
func times(written []write) (all []time.Duration) {
	for _, w := range written {
		all = append(all, w.at)
	}
	return all
}

func probe(ctx context.Context, nodes []*testredis.Server, key string, now func() time.Duration) *prober {
	p := &prober{}
	ctx, p.end = context.WithCancel(ctx)
	for i, node := range nodes {
		p.probing.Go(func() {
			for ; ctx.Err() == nil; pause(ctx, probeEvery) {
				if _, err := node.Command("SET", key, ""); err == nil {
					p.wrote(write{i, now()})
				}
			}
		})
	}
	return p
}

func (p *prober) wrote(w write) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = append(p.written, w)
}

// stop returns the accepted writes with their servers, in ascending order.
func (p *prober) stop() []write {
	p.end()
	p.probing.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortFunc(p.written, func(a, b write) int { return int(a.at - b.at) })
	return p.written
}
