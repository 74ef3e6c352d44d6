package testredis

import (
	"log/slog"
	"time"

	"github.com/seed74116694/fencelock/internal/settings"
)

// Silent gives a locker a logger that discards: else its lines are among the output of the tests. It is the first
// option, so that a logger of the test goes before it.
func Silent() settings.LockerOption {
	return func(l *settings.Locker) { l.Logger = slog.New(slog.DiscardHandler) }
}

// Patience gives a locker on real servers longer timeouts than the default, where no other option sets them: a busy
// machine may stand still for five seconds. It has to be the last option.
func Patience() settings.LockerOption {
	const answer = 15 * time.Second
	return func(l *settings.Locker) {
		if l.NodeTimeout == 0 {
			l.NodeTimeout = min(answer, l.Lock.TTL*3/4)
		}
		if l.ReleaseTimeout == 0 {
			l.ReleaseTimeout = answer
		}
	}
}
