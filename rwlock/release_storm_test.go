package rwlock_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// Releases that a server refuses for a while go on in the background, at a pace that slows down to a cap and belongs to
// the master: they leave it the time that it needs, and are done soon after it takes them again.
func TestRefusedReleasesBackOff(t *testing.T) {
	for _, refusal := range []string{
		"NOREPLICAS Not enough good replicas to write.",
		"LOADING Redis is loading the dataset in memory",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"BUSY Redis is busy running a script.",
	} {
		t.Run(refusal[:7], func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				const leases = 50
				w.TTL = time.Hour
				p := w.Process()
				var all []*rwlock.Lease
				for i := range leases {
					all = append(all, p.Take(fmt.Sprint("n", i), rwlock.Write))
				}
				w.Mini.Miniredis().SetError(refusal)
				var releases sync.WaitGroup
				for _, lease := range all {
					releases.Go(func() { _ = lease.Release(w.Ctx) })
				}
				releases.Wait()
				w.Pass(5 * time.Second)
				p.Link.ResetCalls()
				const window = 5 * time.Second
				w.Pass(window)
				sent := p.Link.Calls("EVALSHA") + p.Link.Calls("EVAL")
				require.LessOrEqual(w, sent, 2*leases*int(window/time.Second),
					"requests for %d releases within %v", leases, window)
				require.Positive(w, sent, "but they are pursued")

				w.Mini.Miniredis().SetError("")
				w.Pass(3 * time.Second)
				for i := range leases {
					require.Empty(w, w.Inspect(fmt.Sprint("n", i)).Holders, "n%d is still held", i)
				}
			})
		})
	}
}

// The pace is the master's: what else is asked of it is served as soon as it serves again.
func TestRefusedReleasesHoldNobodyUp(t *testing.T) {
	inFakeTime(t, func(w *world) {
		w.TTL = time.Hour
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
		w.Mini.Miniredis().SetError("NOREPLICAS Not enough good replicas to write.")
		_ = lease.Release(w.Ctx)
		w.Pass(time.Minute)
		w.Mini.Miniredis().SetError("")
		start := time.Now()
		w.Release(p.Take("other", rwlock.Write))
		require.Less(w, time.Since(start), 200*time.Millisecond)
		w.Eventually("the release is through", func() bool { return len(w.Inspect("n").Holders) == 0 })
		require.Less(w, time.Since(start), 3*time.Second)
	})
}
