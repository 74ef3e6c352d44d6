package redlock_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/scratch"
	"github.com/seed74116694/fencelock/internal/testredis"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-redlock")
	testredis.Together()
	goleak.VerifyTestMain(m)
}

// few is a tenth of the seeds, and one at the least, under -short: the race detector looks for other things than they
// do.
func few(seeds int) int {
	if testing.Short() {
		return max(1, seeds/10)
	}
	return seeds
}
