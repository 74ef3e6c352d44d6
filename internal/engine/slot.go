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
	refused // answered: not in, and not in the queue
	failed  // not answered, or the master cannot serve
)

// slot is one master's part of a lease.
type slot struct {
	standing standing
	token    fencing.Token
	until    instant // trust in this grant
	holder   *Holder // of the lock, when this hold was last told to wait
	err      error
	unknown  bool // an acquire was sent that was never answered: it may still be on its way
	handed   bool // granted from the queue, for the claim time only
}

// live reports whether the master may have something of this hold.
func (s *slot) live() bool {
	return s.standing == asked || s.standing == queued || s.standing == granted || s.unknown
}

func (l *Lease) count1(is standing) (n int) {
	for i := range l.slots {
		if l.slots[i].standing == is {
			n++
		}
	}
	return n
}
