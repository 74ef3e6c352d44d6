package engine

import (
	"sync/atomic"
	"time"
)

// unconfirmed counts the releases that have no quorum's confirmation so far. Close waits for them.
type unconfirmed struct {
	n    atomic.Int64
	none chan struct{} // signals await that the count may be 0
}

func newUnconfirmed() unconfirmed { return unconfirmed{none: make(chan struct{}, 1)} }

// add counts a release that begins, or ends for good: confirmed, refused for good, or expired. If one part of the
// engine hands a release to another, the second part adds before the first subtracts, so the count is never 0 in
// between.
func (u *unconfirmed) add(change int64) {
	if u.n.Add(change) == 0 {
		select {
		case u.none <- struct{}{}:
		default:
		}
	}
}

// await returns when the count is 0, or after the given time. The signal may be old, because the count changes all the
// time, so await checks the count itself.
func (u *unconfirmed) await(most time.Duration) {
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	for u.n.Load() > 0 {
		select {
		case <-u.none:
		case <-timeout.C:
			return
		}
	}
}
