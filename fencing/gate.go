package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// gate is a lock for readers and writers whose waiting ends with a context,
// which that of sync.RWMutex does not. Who came first enters first; readers that
// queue next to each other enter together.
type gate struct {
	mu     sync.Mutex
	shared int  // readers inside
	alone  bool // a writer inside
	queue  []*visitor
}

type visitor struct {
	alone   bool
	entered chan struct{} // closed when inside
}

// enter returns nil once inside, or why ctx has ended if it did so first; then
// the gate is as if enter had not been called.
func (g *gate) enter(ctx context.Context, alone bool) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	g.mu.Lock()
	if len(g.queue) == 0 && g.fits(alone) {
		g.occupy(alone)
		g.mu.Unlock()
		return nil
	}
	v := &visitor{alone: alone, entered: make(chan struct{})}
	g.queue = append(g.queue, v)
	g.mu.Unlock()

	select {
	case <-v.entered:
		return nil
	case <-ctx.Done():
		g.giveUp(v)
		return ended(ctx)
	}
}

// ended returns ctx.Err(), with the cause where that says more.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// giveUp ends v's waiting. Either way others may fit in now: v was let in at the
// same moment and leaves, or it stood before them in the queue.
func (g *gate) giveUp(v *visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queue, v); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	} else {
		g.vacate(v.alone)
	}
	g.admit()
}

func (g *gate) leave(alone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.vacate(alone)
	g.admit()
}

// admit lets in whoever is first in the queue and fits beside those inside.
func (g *gate) admit() {
	for len(g.queue) > 0 && g.fits(g.queue[0].alone) {
		first := g.queue[0]
		g.queue = slices.Delete(g.queue, 0, 1)
		g.occupy(first.alone)
		close(first.entered)
	}
}

func (g *gate) fits(alone bool) bool {
	return !g.alone && (!alone || g.shared == 0)
}

func (g *gate) occupy(alone bool) {
	if alone {
		g.alone = true
	} else {
		g.shared++
	}
}

func (g *gate) vacate(alone bool) {
	if alone {
		g.alone = false
	} else {
		g.shared--
	}
}
