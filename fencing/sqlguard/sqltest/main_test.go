package sqltest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// servers is shared by all tests of this run: starting one takes seconds.
var servers sqltest.Servers

func TestMain(m *testing.M) {
	testredis.Together()
	goleak.VerifyTestMain(suite{m})
}

type suite struct{ *testing.M }

func (s suite) Run() int {
	code := s.M.Run()
	if err := servers.Close(); err != nil {
		panic(err)
	}
	return code
}
