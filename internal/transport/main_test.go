package transport_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-transport")
	goleak.VerifyTestMain(m, testredis.LeftByClusters()...)
}
