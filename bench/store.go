package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// store is the storage that the locks protect: a counter for each name, behind a guard that checks tokens only. Beside
// each counter stands a copy that no guard protects. Every holder writes both, so the copy shows what the guard is for.
type store struct {
	guard   fencing.Watermark
	guarded map[string]*counter // the maps never change; a counter is touched under the guard only
	bare    map[string]*counter // under mu only
	mu      sync.Mutex
	picture *timeline
}

type counter struct {
	value    uint64
	accepted uint64 // writes; each adds one to the value it read, so they must add up to value
}

func (c *counter) set(value uint64) {
	c.value = value
	c.accepted++
}

// reading is what a holder has read.
type reading struct{ guarded, bare uint64 }

func newStore(names []string, picture *timeline) *store {
	s := &store{guarded: make(map[string]*counter), bare: make(map[string]*counter), picture: picture}
	for _, name := range names {
		s.guarded[name], s.bare[name] = new(counter), new(counter)
	}
	return s
}

// load reads the counters. Under a writer's fence that is its claim too: nothing older is written after it.
func (s *store) load(ctx context.Context, f fencing.Fence) (r reading, err error) {
	s.mu.Lock()
	r.bare = s.bare[f.Resource].value
	s.mu.Unlock()
	err = s.guard.Do(ctx, f, func(context.Context) error {
		r.guarded = s.guarded[f.Resource].value
		return nil
	})
	return r, err
}

// increment writes what the holder has read, and one more. The error is the guard's.
func (s *store) increment(ctx context.Context, f fencing.Fence, r reading) error {
	s.mu.Lock()
	s.bare[f.Resource].set(r.bare + 1)
	s.picture.wrote(version{resource: f.Resource, at: time.Now(), value: r.bare + 1})
	s.mu.Unlock()
	return s.guard.Do(ctx, f, func(context.Context) error {
		s.guarded[f.Resource].set(r.guarded + 1)
		s.picture.wrote(version{resource: f.Resource, at: time.Now(), value: r.guarded + 1, guarded: true})
		return nil
	})
}

// lostUpdates returns the counters that miss accepted writes. It is called at the end, after the last write.
func (s *store) lostUpdates() []string {
	var all []string
	for name, c := range s.guarded {
		if c.value != c.accepted {
			all = append(all, fmt.Sprintf("%q: %d after %d accepted writes of one each", name, c.value, c.accepted))
		}
	}
	return all
}

// lostWithoutGuard is how many writes the copies without a guard miss. It is called at the end, after the last write.
func (s *store) lostWithoutGuard() uint64 {
	var lost uint64
	for _, c := range s.bare {
		lost += c.accepted - c.value
	}
	return lost
}
