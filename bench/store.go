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
	guard   fencing.Watermark
	picture *picture

	mu     sync.Mutex
	counts map[cell]*counter
}

// cell is where a counter stands.
type cell struct {
	name    string
	guarded bool
}

type counter struct{ value, writes uint64 } // each write adds one to the value that it read, so they must be equal

// reading is what a holder has read, by whether a guard protects it.
type reading map[bool]uint64

func newStore(names []string, p *picture) *store {
	s := &store{counts: make(map[cell]*counter), picture: p}
	for _, name := range names {
		s.counts[cell{name, true}], s.counts[cell{name, false}] = new(counter), new(counter)
	}
	return s
}

// load reads the counters. Under a writer's fence that is its claim too: nothing older is written after it.
func (s *store) load(ctx context.Context, f fencing.Fence) (reading, error) {
	r := reading{}
	read := func(guarded bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		r[guarded] = s.counts[cell{f.Resource, guarded}].value
	}
	read(false)
	return r, s.guard.Do(ctx, f, func(context.Context) error {
		read(true)
		return nil
	})
}

// increment writes what the holder has read, and one more. The error is the guard's.
func (s *store) increment(ctx context.Context, f fencing.Fence, r reading) error {
	write := func(guarded bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		c := s.counts[cell{f.Resource, guarded}]
		c.value = r[guarded] + 1
		c.writes++
		s.picture.wrote(cell{f.Resource, guarded}, c.value)
	}
	write(false)
	return s.guard.Do(ctx, f, func(context.Context) error {
		write(true)
		return nil
	})
}

// lost returns how many writes the copies without a guard miss, and the counters that miss any behind it. It is called
// after the last write.
func (s *store) lost() (bare uint64, guarded []string) {
	for at, c := range s.counts {
		switch {
		case !at.guarded:
			bare += c.writes - c.value
		case c.value != c.writes:
			guarded = append(guarded, fmt.Sprintf("%q: %d after %d accepted writes of one each", at.name, c.value, c.writes))
		}
	}
	return bare, guarded
}
