package rwlock_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

var manyFor = flag.Duration("rwlock.many", 0, "how long the crowds that take several locks run on servers")

// Eight processes of eight goroutines take random subsets of six locks: every wait ends, and each lock has one writer.
func TestCrowdsTakeSeveralLocks(t *testing.T) {
	for seed := range testredis.Few(1, 2) {
		t.Run(fmt.Sprint("fake time, seed ", seed), func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				w.Net.Way = time.Millisecond
				(&testkit.ManyCrowd{
					Processes: 8, Goroutines: 8, Seed: uint64(seed), Lasts: time.Second / 2, Work: 10 * time.Millisecond,
				}).Run(w)
			})
		})
	}
	if *manyFor == 0 {
		return
	}
	onServers := func(t *testing.T, w *world) {
		t.Parallel()
		(&testkit.ManyCrowd{
			Processes: 8, Goroutines: 8, Seed: uint64(time.Now().UnixNano()), Lasts: *manyFor, Work: 2 * time.Millisecond,
		}).Run(w)
	}
	t.Run("server", func(t *testing.T) { onServers(t, testkit.Start(t, 1)) })
	t.Run("three masters", func(t *testing.T) { onServers(t, testkit.Start(t, 3)) })
	t.Run("cluster", func(t *testing.T) {
		onServers(t, testkit.OnGroup(t, testredis.StartCluster(t, redisBinary(t), 0)))
	})
}
