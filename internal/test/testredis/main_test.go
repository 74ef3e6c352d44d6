package testredis_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-testredis")
	goleak.VerifyTestMain(m, testredis.LeftByClusters()...)
}
