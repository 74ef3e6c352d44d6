package recipes_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/testpostgres"
)

// postgres is the server of this run of tests.
var postgres testpostgres.Server

func TestMain(m *testing.M) {
	// GORM's cache of prepared statements cannot be closed.
	goleak.VerifyTestMain(suite{m}, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}

type suite struct{ *testing.M }

func (s suite) Run() int {
	defer postgres.Stop()
	return s.M.Run()
}

// patience bounds the wait for an event that never comes.
const patience = time.Minute

// await returns the next value of a channel.
func await[T any](t *testing.T, event string, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatalf("no sign of %s after %v", event, patience)
	}
	return value
}
