package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/lab/peer"
)

// contenders is the number of goroutines that want the one name.
const contenders = 16

// arena is one name and its contenders. Only the holder writes freed and last.
type arena struct {
	began time.Time
	freed atomic.Int64 // when the last holder began to release, since began
	last  atomic.Int64 // the contender that did
}

// contender is one goroutine, and its observations.
type contender struct {
	arena    *arena
	id       int64
	peer     peer.Peer
	locks    int
	handOffs int
	longest  time.Duration
	handed   []time.Duration // from the release to the lock, of each hand-off
}

func (a *arena) now() time.Duration { return time.Since(a.began) }

// play takes the lock repeatedly until ctx ends. The longest wait may be a wait that did not end.
func (c *contender) play(ctx context.Context) error {
	for ctx.Err() == nil {
		asked := c.arena.now()
		hold, err := c.peer.Lock(ctx, "name")
		got := c.arena.now()
		c.longest = max(c.longest, got-asked)
		if err != nil && ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		c.take(asked, got)
		c.arena.last.Store(c.id)
		c.arena.freed.Store(int64(c.arena.now()))
		if err := hold.Release(context.WithoutCancel(ctx)); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// take counts a hand-off if the lock went to a contender that was waiting already, and not back to the previous holder.
func (c *contender) take(asked, got time.Duration) {
	c.locks++
	freed := time.Duration(c.arena.freed.Load())
	if freed > asked && c.arena.last.Load() != c.id {
		c.handOffs++
		c.handed = append(c.handed, got-freed)
	}
}

// contend distributes the contenders over the clients, and returns when the time is over.
func contend(ctx context.Context, clients []peer.Peer, contenders int, window time.Duration) ([]*contender, error) {
	ctx, stop := context.WithCancel(ctx) // no deadline: some libraries shorten their leases to it
	defer stop()
	a := &arena{began: time.Now()}
	var all []*contender
	for i := range contenders {
		all = append(all, &contender{arena: a, id: int64(i) + 1, peer: clients[i%len(clients)]})
	}
	timer := time.AfterFunc(window, stop)
	defer timer.Stop()
	if err := together(contenders, func(i int) error { return all[i].play(ctx) }); err != nil {
		return nil, fmt.Errorf("contention: %w", err)
	}
	return all, nil
}
