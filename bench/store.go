package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/seed74116694/fencelock/fencing"
)

// store is the storage that the locks protect: a counter for each name, behind a guard that checks tokens only. Beside
// each counter stands a copy that no guard protects. Every holder writes both, so the copy shows what the guard is for.
type store struct {
	guard  fencing.Watermark
	mu     sync.Mutex
	counts map[string][2]counter
}

const bare, guarded = 0, 1 // the counters of a name

type counter struct{ value, writes uint64 } // each write adds one to the value that it read, so they must be equal

// reading is what a holder has read of the counters of a name.
type reading [2]uint64

// load reads the counters. Under a writer's fence that is its claim too: nothing older is written after it.
func (s *store) load(ctx context.Context, f fencing.Fence) (r reading, err error) {
	err = s.each(ctx, f, func(i int, c *counter) { r[i] = c.value })
	return r, err
}

// increment writes what the holder has read, and one more.
func (s *store) increment(ctx context.Context, f fencing.Fence, r reading) error {
	return s.each(ctx, f, func(i int, c *counter) { c.value, c.writes = r[i]+1, c.writes+1 })
}

// each accesses the copy, and the counter if the guard admits it. The error is the guard's.
func (s *store) each(ctx context.Context, f fencing.Fence, access func(i int, c *counter)) error {
	one := func(i int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		c := s.counts[f.Resource]
		access(i, &c[i])
		s.counts[f.Resource] = c
	}
	one(bare)
	return s.guard.Do(ctx, f, func(context.Context) error {
		one(guarded)
		return nil
	})
}

// lost returns how many writes the copies miss, and the counters that miss any behind the guard. It is called after the
// last write.
func (s *store) lost() (unfenced int, fenced []string) {
	for name, c := range s.counts {
		unfenced += int(c[bare].writes - c[bare].value)
		if c := c[guarded]; c.value != c.writes {
			fenced = append(fenced, fmt.Sprintf("%q: %d after %d accepted writes of one each", name, c.value, c.writes))
		}
	}
	return unfenced, fenced
}
