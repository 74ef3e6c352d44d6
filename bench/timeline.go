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
	mu    sync.Mutex
	bars  []bar
	story *stall
}

// bar is one critical section.
type bar struct {
	client   int
	fence    fencing.Fence
	from, to time.Time
}

// stall is the story of a stalled holder.
type stall struct {
	client            int
	fence             fencing.Fence
	began, lost, late time.Time
	seen              fencing.Token // what the storage had seen when it refused the late write
}

// The picture shows a margin before the stall and after the late write.
const (
	margin  = 120 * time.Millisecond
	maxBars = 50_000 // recorded: 4 MB
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

func write(f fencing.Fence) bool { return f.Mode == rwlock.Write }
