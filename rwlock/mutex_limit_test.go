package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A lock whose limit is noticed by one who comes, before its own timer does, is given back all the same: its holder may
// never unlock. In real time, where a timer comes a little late; so one of many rounds is enough.
func TestALimitThatIsNoticedBeforeItsTimerGivesTheLockBack(t *testing.T) {
	onServer(t, testredis.Start(t), func(w *world) {
		const bound = 20 * time.Millisecond
		p, q := w.process(), w.process()
		mu := p.RWMutex("n", rwlock.WithMaxHold(bound))
		for range 20 {
			require.NoError(w.t, mu.Lock(w.ctx))
			began := time.Now()
			for time.Since(began) < 2*bound {
				require.ErrorIs(w.t, mu.TryLock(w.ctx), rwlock.ErrNotAcquired)
			}
			w.release(q.lock("n", rwlock.Write))
			require.ErrorIs(w.t, mu.Unlock(w.ctx), rwlock.ErrLost)
		}
	})
}
