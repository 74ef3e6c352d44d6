package engine

import (
	"sync/atomic"

	"github.com/seed74116694/fencelock/fencing"
)

// sharedHold is what a hold needs that goroutines of the process share: a block of tokens, and whether another process
// waits for the lock. The lease's mutex guards it.
//
// A token block begins with the token that any other grant would get, has the size that was asked for, and ends at most
// a second ahead of the master's clock. Several masters would each cut it off at their own clock, so the client asks
// for less before that (tokens.budget). Each master reports where its block begins; the lease may use the tokens from
// the largest of these on. Raises, renewals and releases name the last token, which is the master's counter.
type sharedHold struct {
	block       int                  // size of the token block to ask for; 0: the hold is not shared
	first       fencing.Token        // first token of the granted block
	tokenInUse  func() fencing.Token // see Request
	contended   bool                 // set until the hold ends, or until ResetContended
	onContended func()               // called once when contended is set; nil before OnContended and after the call
}

// Block returns the tokens that the lease may use: from the first to the last, which is Token.
func (l *Lease) Block() (first, last fencing.Token) {
	h := l.lock()
	defer l.mu.Unlock()
	if h.extra == nil {
		return h.token(), h.token()
	}
	return h.extra.shared.first, h.token()
}

// inUse returns the token of the work that the hold protects now: of a shared hold one of its block, which ends with
// last. A conversion that is under way has not begun to use its own block.
func (s *sharedHold) inUse(last fencing.Token) fencing.Token {
	if s.tokenInUse != nil {
		if token := s.tokenInUse(); s.first <= token && token < last {
			return token
		}
	}
	return last
}

// OnContended calls f once when the lease is contended, at once if it already is. f must not block. It is for a lease
// from a request that named a block: the masters report waiters to no other lease.
func (l *Lease) OnContended(f func()) {
	h := l.lock()
	defer l.mu.Unlock()
	switch x := h.extra; {
	case x == nil:
	case x.shared.contended:
		l.mu.afterUnlock(f)
	default:
		x.shared.onContended = f
	}
}

// ResetContended clears the contended state of a lease after a conversion that was given up, and asks again for
// waiters: their message may have come already, and is not sent again. It asks only when the masters have released the
// conversion. An earlier question could overtake that release, and the masters would report the conversion as a waiter.
func (l *Lease) ResetContended() {
	h := l.lock()
	defer l.mu.Unlock()
	if h.extra == nil {
		return
	}
	h.extra.shared.contended = false
	var open atomic.Int64
	open.Store(int64(len(h.e.masters)))
	l.mu.afterUnlock(func() {
		for _, releases := range h.e.releases {
			releases.leaving.after(h.key.LockHash(), func() {
				if open.Add(-1) == 0 {
					h := l.lock()
					defer l.mu.Unlock()
					h.keeping.poll()
				}
			})
		}
	})
}
