package rwlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// Eight processes of eight goroutines take random subsets of six locks: every wait ends, and each lock has one writer.
func TestCrowdsTakeSeveralLocks(t *testing.T) {
	for seed := range testredis.Few(1, 2) {
		t.Run(fmt.Sprint("fake time, seed ", seed), func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				w.Net.Way = time.Millisecond
				(&testkit.ManyCrowd{
					Processes: 8, Goroutines: 8, Seed: uint64(seed), Lasts: time.Second / 4, Work: 10 * time.Millisecond,
				}).Run(w)
			})
		})
	}
}
