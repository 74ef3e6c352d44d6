package scripts_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/scratch"
	"github.com/seed74116694/fencelock/internal/testredis"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-scripts")
	goleak.VerifyTestMain(m, testredis.LeftByClusters()...)
}
