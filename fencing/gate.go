package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// gate is a readers-writer lock whose waiting ends with a context, unlike sync.RWMutex. Visitors enter in the order of
// their arrival; readers that are adjacent in the queue enter together.
type gate struct {
	mu     sync.Mutex
	shared int  // readers inside
	alone  bool // a writer is inside
	queue  []*visitor
}

type visitor struct {
	alone   bool
	entered chan struct{} // closed when inside
}

// enter returns nil once the caller is inside. If ctx ends first, it returns ctx's error with the cause, and the gate
// is as if enter had not been called.
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

// ended returns ctx.Err(), with the cause if that adds information.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// giveUp ends v's waiting. In both cases other visitors may fit in now: either v was admitted at the same moment and
// leaves, or v stood before them in the queue.
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

// admit lets in visitors from the front of the queue while they are compatible with the ones inside.
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
