package main

import (
	"sync"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// timeline records the holders of each name over time, for the picture: from the beginning until shortly after the
// first refused late write, so that it stays small in a run of any length. A nil timeline records nothing.
type timeline struct {
	mu       sync.Mutex
	bars     []bar
	versions []version
	story    *stall
}

// bar is one critical section.
type bar struct {
	client   int
	fence    fencing.Fence
	from, to time.Time
}

// version is a counter's value from a moment on.
type version struct {
	resource string
	at       time.Time
	value    uint64
	guarded  bool // the storage checks tokens
}

// stall is the story of a stalled holder.
type stall struct {
	client            int
	fence             fencing.Fence
	began, lost, late time.Time
	seen              fencing.Token // what the storage had seen when it refused the late write
	wrote             uint64        // the late write's value where no token is checked
}

// The picture shows a margin before the stall and after the late write.
const (
	margin  = 120 * time.Millisecond
	maxBars = 50_000 // recorded, and as many versions: 8 MB
)

func (t *timeline) add(client int, lease *rwlock.Lease, from, to time.Time) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	over := t.story != nil && from.After(t.story.late.Add(margin))
	if !over && len(t.bars) < maxBars {
		t.bars = append(t.bars, bar{client, lease.Fence(), from, to})
	}
}

func (t *timeline) wrote(v version) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	over := t.story != nil && v.at.After(t.story.late.Add(margin))
	if !over && len(t.versions) < maxBars {
		t.versions = append(t.versions, v)
	}
}

// tell ends the recording, but for the margin. Only the first story counts.
func (t *timeline) tell(s stall) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.story == nil {
		t.story = &s
	}
}

// window returns the time that the picture shows and its bars: around the story, or everything if there is none.
func (t *timeline) window() (from, to time.Time, bars []bar) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.story != nil {
		from, to = t.story.began.Add(-margin), t.story.late.Add(margin)
	}
	for _, b := range t.bars {
		if t.story == nil {
			if from.IsZero() || b.from.Before(from) {
				from = b.from
			}
			if b.to.After(to) {
				to = b.to
			}
		}
		if t.story == nil || b.to.After(from) && b.from.Before(to) {
			bars = append(bars, b)
		}
	}
	return from, to, bars
}

// told returns the first story, or nil.
func (t *timeline) told() *stall {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.story
}

// history returns the versions of one counter from a moment to another, and before them the one that stood at first.
func (t *timeline) history(resource string, guarded bool, from, to time.Time) []version {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := []version{{resource: resource, guarded: guarded}}
	for _, v := range t.versions {
		switch {
		case v.resource != resource || v.guarded != guarded || v.at.After(to):
		case v.at.Before(from):
			all[0] = v
		default:
			all = append(all, v)
		}
	}
	return all
}

func write(f fencing.Fence) bool { return f.Mode == rwlock.Write }
