package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A master that has restarted without its data has every lease again after the next renewal at the latest, whichever
// master answers first, and at once if its marker is read before that. Until then a second loss would be a quorum's.
func TestARestartedMasterGetsLeasesBackAtOnce(t *testing.T) {
	const way = time.Millisecond
	for name, c := range map[string]struct {
		reads  bool // the process takes another lock, for which it reads the marker
		within time.Duration
	}{
		"at the next renewal":     {false, 10 * time.Second / 3},
		"when its marker is read": {true, time.Second},
	} {
		for _, mode := range testredis.Few([]rwlock.Mode{rwlock.Write}, []rwlock.Mode{rwlock.Write, rwlock.Read}) {
			for restarted := range 3 {
				runInFakeTime(t, name+", "+mode.String()+[]string{", first", ", second", ", third"}[restarted], 3, func(w *world) {
					for _, m := range w.Minis {
						m.NewProcess()
					}
					w.Net.Tuned, w.Net.Way = true, way
					p := warm(w)
					w.Observer().WarmUp()
					lease, other := p.Take("x", mode), p.Take("y", mode)
					w.Pass(10 * time.Millisecond)
					w.Wipe(restarted)
					begun := time.Now()
					if c.reads {
						p.Section("other")
					}
					for !standsEverywhere(w, lease) || !standsEverywhere(w, other) {
						require.Less(w, time.Since(begun), c.within+50*way)
						w.Pass(way)
					}
					w.Release(lease)
					w.Release(other)
				})
			}
		}
	}
}
