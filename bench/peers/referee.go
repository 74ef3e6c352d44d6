package main

import (
	"sync"
	"time"

	"github.com/seed74116694/fencelock/bench/peers/internal/peer"
)

// referee verifies from outside that no client enters while another one trusts its hold, and that tokens grow. All
// clients are in one process, so its mutex puts all their events into one order.
type referee struct {
	mu     sync.Mutex
	names  map[string]*record
	broken []*breach
	order  int // tokens that did not exceed all before them
}

// record is the referee's record of one name.
type record struct {
	inside map[*visit]struct{}
	newest uint64 // token
}

// visit is one critical section.
type visit struct {
	name    string
	hold    peer.Hold
	unknown bool // the servers did not know the hold when it was released
}

// breach is two simultaneous critical sections of one name.
type breach struct {
	older, newer *visit
	at           time.Time
}

func newReferee() *referee { return &referee{names: make(map[string]*record)} }

func (r *referee) record(name string) *record {
	one := r.names[name]
	if one == nil {
		one = &record{inside: make(map[*visit]struct{})}
		r.names[name] = one
	}
	return one
}

// newest returns the greatest token of a name so far: an acquisition after this call must get a greater one.
func (r *referee) newest(name string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.record(name).newest
}

// enter is called after the lock was acquired; seen is the result of newest from before the acquisition began.
func (r *referee) enter(name string, hold peer.Hold, seen uint64) *visit {
	v := &visit{name: name, hold: hold}
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.record(name)
	for other := range one.inside {
		if believes(other.hold) && believes(hold) {
			r.broken = append(r.broken, &breach{other, v, time.Now()})
		}
	}
	if fenced, ok := hold.(peer.Fenced); ok {
		token := uint64(fenced.Token())
		if token <= seen || token <= one.newest && believes(hold) {
			r.order++
		}
		one.newest = max(one.newest, token)
	}
	one.inside[v] = struct{}{}
	return v
}

// leave is called before the lock is released.
func (r *referee) leave(v *visit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.record(v.name).inside, v)
}

// forgot records that the servers did not know the hold any more.
func (r *referee) forgot(v *visit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v.unknown = true
}

// violations returns the number of simultaneous sections, and the times of the violations that no forgotten hold
// explains. To be called when all have left.
func (r *referee) violations() (all int, unexplained []time.Time) {
	for _, b := range r.broken {
		if !b.older.unknown && !b.newer.unknown {
			unexplained = append(unexplained, b.at)
		}
	}
	return len(r.broken), unexplained
}

func believes(hold peer.Hold) bool {
	kept, ok := hold.(peer.Kept)
	return !ok || !kept.Lost()
}
