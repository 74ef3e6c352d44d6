package rwlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// spareSections is how often a process hands the lock on among its goroutines while another one waits, shortSections
// how often more where that takes less than 200 us.
const spareSections, shortSections = 16, 112

// Sections that are shorter than a hand-off between processes are not cut off by one after so few.
func TestShortSectionsGoOnForAMoment(t *testing.T) {
	for hold, served := range map[time.Duration]int{
		0:                     spareSections + shortSections,
		10 * time.Microsecond: 19, // in less than 200 us
		time.Millisecond:      spareSections,
	} {
		t.Run(hold.String(), func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p, q := w.Process(), w.Process()
				hasWaited(p)
				mu := p.RWMutex("n")
				require.NoError(w, mu.Lock(w.Ctx))
				waiting := lockCrowd(w, 2*(spareSections+shortSections), mu.Lock)
				other := q.Queue("n", rwlock.Write)
				w.Settle()
				n := 0
				for ; other.IsWaiting(); n++ {
					w.Pass(hold)
					require.NoError(w, mu.Unlock(w.Ctx))
					w.Settle()
				}
				require.Equal(w, served, n-1, "besides the one who was in")
				w.Release(other.Granted())
				for _, l := range waiting[n-1:] {
					require.NoError(w, l.Result())
					require.NoError(w, mu.Unlock(w.Ctx))
				}
				w.OnlyTokensLeft()
			})
		})
	}
}
