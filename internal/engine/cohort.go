package engine

import "github.com/seed74116694/fencelock/fencing"

// cohort is what a lease has that the goroutines of a process share: a block of tokens, and news of those who wait for
// it elsewhere. It is guarded by the lease's mutex.
type cohort struct {
	block    int           // tokens that were asked for; 0: the lease is no cohort's
	first    fencing.Token // of those that were granted
	wanted   bool
	onWanted func()
}

// Block returns the tokens that the lease may use: from the first to the last, which is Token.
func (l *Lease) Block() (first, last fencing.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cohort.first, l.token
}

// OnWanted calls f once when somebody waits for the lock elsewhere, at once if that is so already. f must not block.
func (l *Lease) OnWanted(f func()) {
	l.mu.Lock()
	defer l.unlock()
	if l.cohort.wanted {
		l.afterUnlock(f)
	} else {
		l.cohort.onWanted = f
	}
}

// want notes that somebody waits for the lock elsewhere, under mu.
func (l *Lease) want() {
	l.cohort.wanted = true
	if f := l.cohort.onWanted; f != nil {
		l.cohort.onWanted = nil
		l.afterUnlock(f)
	}
}

// listenAll has the messages of every master arrive: a cohort's holder is told of those who wait.
func (e *Engine) listenAll() {
	for _, m := range e.masters {
		m.Listen()
	}
}

// wantedElsewhere follows a renewal's answer.
func (l *Lease) wantedElsewhere() {
	l.mu.Lock()
	defer l.unlock()
	if l.phase != ended {
		l.want()
	}
}

// wantedMessage follows a message that somebody waits for a hold.
func (e *Engine) wantedMessage(hold string) {
	if l := e.lookup(hold); l != nil {
		l.mu.Lock()
		defer l.unlock()
		if hold == l.hold && l.phase != ended {
			l.want()
		}
	}
}

// lookAgain renews what cohorts have: the answer tells of those who wait, whose message may have been lost.
func (e *Engine) lookAgain() {
	for _, l := range e.snapshot() {
		l.mu.Lock()
		if now := l.e.clock.Now(); l.cohort.block > 0 && l.phase == held && l.renewal.round == nil && l.terms.Renew {
			l.startRenewal(now)
			l.setTimer()
		}
		l.unlock()
	}
}

// ReleaseSoon ends a lease that is held, as Release does, and gives the lock back in the background.
func (l *Lease) ReleaseSoon() {
	l.mu.Lock()
	defer l.unlock()
	l.expire(l.e.clock.Now())
	if l.phase == held {
		l.tellReleased()
		l.finish(ErrReleased)
		l.releaseInBackground()
	}
}
