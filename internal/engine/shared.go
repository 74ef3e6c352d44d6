package engine

import (
	"github.com/seed74116694/fencelock/fencing"
)

// cohort is the part of a lease that a shared hold needs: a block of tokens, and whether the hold is contended. The
// lease's mutex guards it.
type cohort struct {
	block    int           // size of the token block to ask for; 0: the hold is not shared
	first    fencing.Token // first token of the granted block
	wanted   bool          // the hold is contended; set until the hold ends, or until ForgetWanted
	onWanted func()        // called once when wanted is set; nil before OnWanted and after the call
	last     *withdrawal   // of the last conversion of the lease
}

// Block returns the tokens that the lease may use: from the first to the last, which is Token.
func (l *Lease) Block() (first, last fencing.Token) {
	l = l.lock()
	defer l.mu.Unlock()
	if l.extra == nil {
		return l.token(), l.token()
	}
	return l.extra.cohort.first, l.token()
}

// OnWanted calls f once when the lease is contended, at once if it already is. f must not block. It is for a lease from
// a request that named a block: the masters report waiters to no other lease.
func (l *Lease) OnWanted(f func()) {
	l = l.lock()
	defer l.mu.Unlock()
	switch x := l.extra; {
	case x == nil:
	case x.cohort.wanted:
		l.mu.afterUnlock(f)
	default:
		x.cohort.onWanted = f
	}
}

// ForgetWanted clears the contended state of a lease after a conversion that was given up, and asks again for waiters:
// their message may have come already, and is not sent again. It asks only when the masters have released the
// conversion. An earlier question could overtake that release, and the masters would report the conversion as a waiter.
func ForgetWanted(l *Lease) {
	l = l.lock()
	defer l.mu.Unlock()
	if l.extra == nil {
		return
	}
	c := &l.extra.cohort
	c.wanted = false
	withdrawn := c.last
	l.mu.afterUnlock(func() {
		withdrawn.after(func() {
			l := l.lock()
			defer l.mu.Unlock()
			renewForNews(l)
		})
	})
}

// want records that the hold is contended, under mu. A nil x belongs to a lease that is not shared.
func (x *extra) want(mu *guard) {
	if x == nil {
		return
	}
	c := &x.cohort
	c.wanted = true
	if f := c.onWanted; f != nil {
		c.onWanted = nil
		mu.afterUnlock(f)
	}
}

// renewForNews renews a shared hold, under mu, because the answer reports waiters. The server may have answered a round
// that is under way before they queued, so another round follows it.
func renewForNews(l *Lease) {
	switch {
	case l.block() == 0 || l.phase != held || !l.terms.Renew:
	case l.renewal.round != nil:
		l.renewal.again = true
	default:
		l.renewal.start(l, l.e.clock.Now())
		l.setTimer()
	}
}
