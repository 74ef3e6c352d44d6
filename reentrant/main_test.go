package reentrant_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/scratch"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-reentrant")
	goleak.VerifyTestMain(m)
}
