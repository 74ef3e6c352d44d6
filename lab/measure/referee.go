package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/lab/peer"
	"github.com/seed74116694/fencelock/rwlock"
)

// referee has a judge watch the holds of any library.
type referee struct {
	*judge.Judge
	mu     sync.Mutex
	broken []breach
	order  int // tokens that did not exceed all before them
}

// breach is two simultaneous critical sections of one name.
type breach struct {
	older, newer *visit
	at           time.Time
}

func newReferee() *referee {
	r := &referee{}
	r.Judge = judge.New(func(v judge.Violation) {
		r.mu.Lock()
		defer r.mu.Unlock()
		newer := v.Newer.(*visit)
		if v.Rule == judge.Exclusion {
			r.broken = append(r.broken, breach{v.Older.(*visit), newer, time.Now()})
		} else if newer.Token() > 0 {
			r.order++
		}
	})
	return r
}

// violations returns the number of simultaneous sections, and the times of the violations that no forgotten hold
// explains. To be called when all have left.
func (r *referee) violations() (all int, unexplained []time.Time) {
	for _, b := range r.broken {
		if !b.older.unknown.Load() && !b.newer.unknown.Load() {
			unexplained = append(unexplained, b.at)
		}
	}
	return len(r.broken), unexplained
}

// visit is one critical section.
type visit struct {
	hold    peer.Hold
	left    atomic.Bool // before the release
	unknown atomic.Bool // the servers did not know the hold when it was released
}

func (v *visit) Mode() rwlock.Mode { return rwlock.Write }

// Token is 0 where the library has none.
func (v *visit) Token() fencing.Token {
	if fenced, ok := v.hold.(peer.Fenced); ok {
		return fenced.Token()
	}
	return 0
}

func (v *visit) Err() error {
	if v.left.Load() {
		return rwlock.ErrReleased
	}
	if kept, ok := v.hold.(peer.Kept); ok && kept.Lost() {
		return rwlock.ErrLost
	}
	return nil
}
