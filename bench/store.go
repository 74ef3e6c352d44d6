package main

import (
	"context"
	"fmt"

	"github.com/seed74116694/fencelock/fencing"
)

// store is the storage that the locks protect: a counter for each name, behind a guard that checks tokens only.
type store struct {
	guard fencing.Watermark
	cells map[string]*cell // the map never changes; a cell is touched under the guard only
}

type cell struct {
	value    uint64
	accepted uint64 // writes; each adds one to the value it read, so they must add up to value
}

func newStore(names []string) *store {
	s := &store{cells: make(map[string]*cell)}
	for _, name := range names {
		s.cells[name] = new(cell)
	}
	return s
}

// load reads the counter. Under a writer's fence that is its claim too: nothing older is written after it.
func (s *store) load(ctx context.Context, f fencing.Fence) (value uint64, err error) {
	err = s.guard.Do(ctx, f, func(context.Context) error {
		value = s.cells[f.Resource].value
		return nil
	})
	return value, err
}

func (s *store) save(ctx context.Context, f fencing.Fence, value uint64) error {
	return s.guard.Do(ctx, f, func(context.Context) error {
		c := s.cells[f.Resource]
		c.value = value
		c.accepted++
		return nil
	})
}

// lostUpdates returns the counters that miss accepted writes. It is called at the end, after the last write.
func (s *store) lostUpdates() []string {
	var all []string
	for name, c := range s.cells {
		if c.value != c.accepted {
			all = append(all, fmt.Sprintf("%q: %d after %d accepted writes of one each", name, c.value, c.accepted))
		}
	}
	return all
}
