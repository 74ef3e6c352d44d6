package redlock_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/testredis"
)

func TestMain(m *testing.M) {
	testredis.Together()
	goleak.VerifyTestMain(m)
}
