package engine

import (
	"github.com/seed74116694/fencelock/fencing"
)

// standing is what is known of a hold on one master.
type standing uint8

const (
	unasked standing = iota // not sent yet, or lost there: ask
	asked                   // sent, and no answer yet
	queued
	granted
	refused  // answered: not in, and not in the queue
	failed   // not answered, or the master cannot serve
	passed   // granted, but of no use: its counter has passed the target, or the hold is gone
	yielding // a grant that may be given to an older hold: it does not count
)

// slot is one master's part of a lease.
type slot struct {
	standing standing
	token    fencing.Token
	until    instant // trust in this grant
	holder   *Holder // of the lock, when this hold was last told to wait
	err      error
	unknown  bool          // an acquire was sent that was never answered: it may still be on its way
	handed   bool          // granted from the queue, for the claim time only
	wanted   bool          // an older hold waits behind this one
	reads    bool          // a join for writing was refused, since the owner holds the lock for reading
	raising  bool          // a raise is on its way
	giving   bool          // a yield is on its way
	yielded  fencing.Token // of a grant that was given back: news of it is stale
}

// live reports whether the master may have something of this hold.
func (s *slot) live() bool {
	return s.standing == asked || s.standing == queued || s.standing == granted || s.standing == passed || s.standing == yielding || s.unknown
}

// answers is how many masters have said something of the hold, and have not failed since.
func (l *Lease) answers() (n int) {
	for i := range l.slots {
		switch s := &l.slots[i]; s.standing {
		case queued, granted, refused, passed, yielding:
			if s.err == nil {
				n++
			}
		}
	}
	return n
}

func (l *Lease) count1(is standing) (n int) {
	for i := range l.slots {
		if l.slots[i].standing == is {
			n++
		}
	}
	return n
}
