package main

import (
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/internal/test/scriptfuzz"
	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// holds is the record of the holds that one master grants.
type holds struct {
	master int

	mu     sync.Mutex
	offset int64 // from a time of the master's clock to the monotonic one
	skew   time.Duration
	open   map[string]map[string]*history.Hold // by lock and id
	ended  []history.Hold
	crowds map[string]bool // locks with too many records to be shown, at least once
}

func newHolds(master int) *holds {
	r := &holds{master: master, open: map[string]map[string]*history.Hold{}, crowds: map[string]bool{}}
	least := int64(math.MaxInt64)
	for range 100 { // the readings of the two clocks with the least time between them
		before := now()
		wall := time.Now().UnixNano()
		if took := now() - before; took < least {
			least, r.offset = took, before-wall
		}
	}
	return r
}

// skewed notes that the clock of the master is ahead by d from now on.
func (r *holds) skewed(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skew = d
}

// change notes what a script call has changed about the holds of a lock. What has gone between two calls has expired,
// or the master has lost it.
func (r *holds) change(c scriptfuzz.Change) {
	_, name, _ := strings.Cut(c.Key, "{")
	name = strings.TrimSuffix(name, "}")
	at := now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Crowd {
		r.crowds[name] = true
		return
	}
	open := r.open[name]
	if open == nil {
		open = map[string]*history.Hold{}
		r.open[name] = open
	}
	for id, h := range open {
		stood := slices.ContainsFunc(c.Before, func(s scriptfuzz.Standing) bool { return s.ID == id })
		stands := slices.IndexFunc(c.After, func(s scriptfuzz.Standing) bool { return s.ID == id })
		h.Lost = !stood && h.Until > at
		switch {
		case stands >= 0 && stood && r.continues(h, c.After[stands]):
			// A clock that went ahead has not ended it before now.
			h.Until = max(min(h.Until, at), r.monotonic(c.After[stands].Expiry*int64(time.Millisecond)))
			h.Ends = h.Ends || c.After[stands].Token == 0
			continue
		case stood && stands < 0:
			h.Until = min(h.Until, at)
		case stood:
			h.Until = min(h.Until, at) // it goes on with another token
		}
		r.ended = append(r.ended, *h)
		delete(open, id)
	}
	for _, s := range c.After {
		if open[s.ID] == nil && s.Token > 0 {
			open[s.ID] = &history.Hold{
				Master: r.master, Name: name, ID: s.ID, Write: s.Write, Token: uint64(s.Token), Block: uint64(s.Block),
				From: r.monotonic(c.Micros * 1000), Until: r.monotonic(s.Expiry * int64(time.Millisecond)),
			}
		}
	}
}

// continues reports whether a hold still has its token. Without one it is broken or ended, and stands until its expiry.
func (r *holds) continues(h *history.Hold, s scriptfuzz.Standing) bool {
	return (s.Token == 0 || uint64(s.Token) == h.Token) && s.Write == h.Write
}

// monotonic returns the time of a time on the master's clock, in nanoseconds.
func (r *holds) monotonic(nanos int64) int64 { return nanos - int64(r.skew) + r.offset }

// take returns all holds so far.
func (r *holds) take() []history.Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.ended)
	for name := range r.crowds {
		all = append(all, history.Hold{Master: r.master, Name: name, Crowd: true})
	}
	for _, open := range r.open {
		for _, h := range open {
			all = append(all, *h)
		}
	}
	return all
}
