package testredis

import (
	"time"

	"github.com/seed74116694/fencelock/internal/settings"
)

// Patience has a locker on real servers wait longer for an answer than by default, where it is not told otherwise: a
// busy machine may stand still for a second or two. It is to be the last option.
func Patience() settings.LockerOption {
	const answer = 5 * time.Second
	return func(l *settings.Locker) {
		if l.NodeTimeout == 0 {
			l.NodeTimeout = min(answer, l.Lock.TTL*3/4)
		}
		if l.ReleaseTimeout == 0 {
			l.ReleaseTimeout = answer
		}
	}
}
