package main

import (
	"fmt"
	"sync"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// trusted is the checker's view of a lease, which is the holder's view too.
type trusted interface {
	Name() string
	Mode() rwlock.Mode
	Token() fencing.Token
	Err() error // nil while the holder trusts the lease
}

// checker verifies from outside that critical sections exclude each other. All clients are in one process, so its mutex
// puts all their events into one order.
type checker struct {
	score *scoreboard
	mu    sync.Mutex
	books map[string]*book
}

// book is the checker's record of one name.
type book struct {
	inside      map[trusted]struct{}
	newest      fencing.Token // of all holders that entered
	newestWrite fencing.Token // of the writers among them
}

func newChecker(score *scoreboard) *checker {
	return &checker{score: score, books: make(map[string]*book)}
}

func (r *checker) book(name string) *book {
	b := r.books[name]
	if b == nil {
		b = &book{inside: make(map[trusted]struct{})}
		r.books[name] = b
	}
	return b
}

// newest returns the greatest token of a name so far that an acquisition which begins after this call must exceed: a
// writer exceeds all, a reader all writers. Readers are not ordered among each other, and may share a token.
func (r *checker) newest(name string, mode rwlock.Mode) fencing.Token {
	r.mu.Lock()
	defer r.mu.Unlock()
	if mode == rwlock.Read {
		return r.book(name).newestWrite
	}
	return r.book(name).newest
}

// enter is called after a lease was acquired; before is the result of newest from just before the acquisition began.
func (r *checker) enter(l trusted, before fencing.Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.book(l.Name())
	r.checkOrder(b, l, before)
	r.checkExclusion(b, l)
	b.enter(l)
}

// leave is called before the lease is released, or when its holder knows that it is lost.
func (r *checker) leave(l trusted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.book(l.Name()).inside, l)
}

// checkExclusion compares beliefs. Both leases are asked now, the newcomer last: it has been held since before this
// call, and the other was held when it was asked, so two nil answers are two leases at one moment. A newcomer that
// overlaps with an earlier lease finds it here, because a lease leaves before it is released.
func (r *checker) checkExclusion(b *book, l trusted) {
	for other := range b.inside {
		if l.Mode() == rwlock.Read && other.Mode() == rwlock.Read {
			continue
		}
		if other.Err() == nil && l.Err() == nil {
			r.score.violated(exclusion, fmt.Sprintf("%q is held for %s with token %v beside %s with token %v",
				l.Name(), l.Mode(), l.Token(), other.Mode(), other.Token()))
		}
	}
}

// checkOrder has two rules. Every token reported before the acquisition began is less. And among leases that exclude
// each other the order of entering is the order of the grants, if the newcomer is still trusted: so a writer's token
// exceeds all before it, and a reader's token all writers before it.
func (r *checker) checkOrder(b *book, l trusted, before fencing.Token) {
	floor := before
	if l.Err() == nil {
		floor = max(floor, b.newestWrite)
		if l.Mode() == rwlock.Write {
			floor = max(floor, b.newest)
		}
	}
	if l.Token() <= floor || l.Token() == b.newestWrite {
		r.score.violated(tokenOrder, fmt.Sprintf("%q: %s with token %v after token %v",
			l.Name(), l.Mode(), l.Token(), max(floor, b.newestWrite)))
	}
}

func (b *book) enter(l trusted) {
	b.inside[l] = struct{}{}
	b.newest = max(b.newest, l.Token())
	if l.Mode() == rwlock.Write {
		b.newestWrite = max(b.newestWrite, l.Token())
	}
}
