package scripts_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/scratch"
)

// The client of a Cluster leaves goroutines behind that sleep for up to 5 s before they look at it again.
func TestMain(m *testing.M) {
	scratch.Use("fencelock-scripts")
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient).redirectOrNew.func1"),
	)
}
