package engine

import (
	"github.com/seed74116694/fencelock/fencing"
)

// cohort is what a lease has that the goroutines of a process share: a block of tokens, and news of those who wait for
// it elsewhere. It is guarded by the lease's mutex.
type cohort struct {
	block    int           // tokens that it wants; 0: the hold is shared by nobody
	first    fencing.Token // of those that were granted
	wanted   bool          // somebody waits elsewhere; it stays so until the hold ends
	onWanted func()        // told of that, once; nil before OnWanted and after the call
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

// OnWanted calls f once when somebody waits for the lock elsewhere, at once if that is so already. f must not block. It
// is for a lease whose request named a block: nobody tells the others of those who wait.
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

// ForgetWanted has a lease forget that somebody waits for the lock elsewhere, after a conversion that was given up, and
// asks who does yet: their message may have come already, and is not sent again. It asks only when the masters have let
// go of the conversion. The question could overtake its release, and the masters would answer that it waits.
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

// want notes that somebody waits for the lock elsewhere, under mu. It is nothing to a lease that nobody shares.
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

// wantedBy returns what follows a renewal's answer that somebody waits for the lock. It is the second way to learn of
// that: the message is sent once, to the first who queues, and may be lost.
func wantedBy(l *Lease) func() {
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.phase != ended {
			l.extra.want(&l.mu)
		}
	}
}

// wanted follows a message that somebody waits for this hold of the lease.
func (b *mailbox) wanted(l *Lease, hold string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if hold == l.id && l.phase != ended {
		l.extra.want(&l.mu)
	}
}

// lookAgain has all cohorts look, whenever messages begin to arrive: those before may have been lost.
func (r *registry) lookAgain() {
	for _, l := range r.snapshot() {
		l.mu.Lock()
		renewForNews(l)
		l.mu.Unlock()
	}
}

// renewForNews renews what a cohort has, under mu: the answer tells of those who wait. A round under way may have been
// answered on the server before they came, so another one follows it.
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
