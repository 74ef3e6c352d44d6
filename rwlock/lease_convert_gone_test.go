package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// A conversion of a hold that the server does not have any more, since its clock was set forward or its data is lost,
// is a loss: another may have been in meanwhile. The hold of another is the cause only where it could stand beside the
// lease.
func TestAConversionOfAHoldThatIsGoneIsALoss(t *testing.T) {
	for name, meanwhile := range map[string]func(w *world, q *process){
		"nobody was in":    func(*world, *process) {},
		"a writer was in":  func(w *world, q *process) { w.Release(q.Take("n", rwlock.Write)) },
		"a writer is in":   func(_ *world, q *process) { q.Take("n", rwlock.Write) },
		"a reader is in":   func(_ *world, q *process) { q.Take("n", rwlock.Read) },
		"its data is lost": func(w *world, _ *process) { w.FlushAll() },
	} {
		for _, mode := range []rwlock.Mode{rwlock.Read, rwlock.Write} {
			t.Run(name+", from "+mode.String(), func(t *testing.T) {
				inFakeTime(t, func(w *world) {
					w.Mini.Skew(0)
					p, q := w.Process(), w.Process()
					lease := p.Take("n", mode)
					w.Mini.Skew(w.TTL + time.Second)
					meanwhile(w, q)
					var err error
					if mode == rwlock.Write {
						err = lease.Downgrade(w.Ctx)
					} else {
						err = lease.TryUpgrade(w.Ctx)
					}
					if mode == rwlock.Read && name == "a reader is in" {
						require.ErrorIs(w, err, rwlock.ErrNotAcquired)
						return
					}
					require.ErrorIs(w, err, rwlock.ErrLost)
					require.ErrorContains(w, err, "gone from Redis")
					require.ErrorIs(w, lease.Err(), rwlock.ErrLost)
				})
			})
		}
	}
}
