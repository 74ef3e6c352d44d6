package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/lab/peer"
)

// crowd is goroutines of several clients that repeatedly take locks, hold them for a while, and release them. A client
// stands for a process.
type crowd struct {
	clients []peer.Peer
	workers []*worker
	hold    time.Duration
	referee *referee
	began   time.Time
	end     context.CancelFunc
	working sync.WaitGroup
}

// worker is one goroutine, and its observations.
type worker struct {
	*crowd
	peer   peer.Peer
	names  []string // takes one of them at random
	grants []grant
	failed []error // of Lock
	lost   []error // holds that ended before they were released
}

// grant is one acquisition; times count from the start of the crowd.
type grant struct {
	name       string
	asked, got time.Duration
}

const (
	processes  = 8
	perProcess = 4
	crowdHold  = 5 * time.Millisecond
)

func newCrowd(clients []peer.Peer) *crowd {
	return &crowd{clients: clients, hold: crowdHold, referee: newReferee()}
}

// add adds perClient goroutines of each client, which take these names.
func (c *crowd) add(perClient int, names []string) {
	for _, p := range c.clients {
		for range perClient {
			c.workers = append(c.workers, &worker{crowd: c, peer: p, names: names})
		}
	}
}

// start lets them work until stop. Their calls have no deadline: some libraries shorten their leases to it.
func (c *crowd) start(ctx context.Context) {
	ctx, c.end = context.WithCancel(ctx)
	c.began = time.Now()
	for _, w := range c.workers {
		c.working.Go(func() { w.work(ctx) })
	}
}

func (c *crowd) now() time.Duration { return time.Since(c.began) }

// stop returns when all have ended. Their observations can be read then. It may be called twice: an aborted workload
// must leave no goroutine behind that would work during the following ones.
func (c *crowd) stop() {
	c.end()
	c.working.Wait()
}

// afterFailure is how long a goroutine waits after a Lock that failed.
const afterFailure = 5 * time.Millisecond

func (w *worker) work(ctx context.Context) {
	for ctx.Err() == nil {
		name := w.names[rand.N(len(w.names))]
		at := w.referee.Begin(name)
		asked := w.now()
		hold, err := w.peer.Lock(ctx, name)
		got := w.now()
		if err != nil {
			if ctx.Err() == nil {
				w.failed = append(w.failed, err)
				pause(ctx, afterFailure)
			}
			continue
		}
		w.grants = append(w.grants, grant{name, asked, got})
		w.use(ctx, name, hold, at)
	}
}

// use is the critical section, and the release.
func (w *worker) use(ctx context.Context, name string, hold peer.Hold, at judge.Attempt) {
	in := &visit{hold: hold}
	w.referee.Acquired(at, in)
	pause(ctx, w.hold)
	kept, ok := hold.(peer.Kept)
	lost := ok && kept.Lost() && ctx.Err() == nil // some libraries end a hold with the context of its Lock
	in.left.Store(true)
	err := hold.Release(context.WithoutCancel(ctx))
	if forgotten := errors.Is(err, peer.ErrForgotten); lost || forgotten {
		w.lost = append(w.lost, fmt.Errorf("%s: %w", name, err))
		in.unknown.Store(true)
	}
}

// grants returns the grants of all goroutines, in the order of time.
func (c *crowd) grants() (all []grant) {
	for _, w := range c.workers {
		all = append(all, w.grants...)
	}
	slices.SortFunc(all, func(a, b grant) int { return int(a.got - b.got) })
	return all
}

// failures returns the number of failed calls of Lock, and the first error of each goroutine.
func (c *crowd) failures() (n int, why error) {
	for _, w := range c.workers {
		if n += len(w.failed); len(w.failed) > 0 {
			why = errors.Join(why, w.failed[0])
		}
	}
	return n, why
}

// losses returns how many holds were lost.
func (c *crowd) losses() (n int) {
	for _, w := range c.workers {
		n += len(w.lost)
	}
	return n
}

// of returns the grants of the names.
func of(all []grant, names []string) []grant {
	return slices.Collect(func(yield func(grant) bool) {
		for _, g := range all {
			if slices.Contains(names, g.name) && !yield(g) {
				return
			}
		}
	})
}

// moments returns the times of the grants.
func moments(all []grant) []time.Duration {
	var out []time.Duration
	for _, g := range all {
		out = append(out, g.got)
	}
	return out
}

// longestGap returns the longest time without any of the moments, which ascend, from one time to another.
func longestGap(moments []time.Duration, from, to time.Duration) (longest time.Duration) {
	last := from
	for _, at := range moments {
		if from <= at && at < to {
			longest = max(longest, at-last)
			last = at
		}
	}
	return max(longest, to-last)
}
