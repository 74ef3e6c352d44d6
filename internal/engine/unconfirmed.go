package engine

import (
	"sync/atomic"
	"time"
)

// unconfirmed counts the releases that no quorum has confirmed yet. Close waits for them.
type unconfirmed struct {
	n    atomic.Int64
	none chan struct{} // tells await that there may be none left
}

func newUnconfirmed() unconfirmed { return unconfirmed{none: make(chan struct{}, 1)} }

// add counts a release that begins, or ends for good: confirmed, refused for good, or expired. Where one part of the
// engine hands a release to another, the second adds before the first takes off, so the count is never 0 in between.
func (u *unconfirmed) add(change int64) {
	if u.n.Add(change) == 0 {
		select {
		case u.none <- struct{}{}:
		default:
		}
	}
}

// await returns when there are none, at the latest after the given time. The signal may be old, since counts come and
// go, so the count itself decides.
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
