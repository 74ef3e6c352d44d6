package testredis

import (
	"flag"
	"os"
	"runtime/debug"
	"strconv"

	"go.uber.org/goleak"
)

// waiting is how many parallel tests of a package run at once, see Together.
const waiting = 16

// Together is for the TestMain of a package with tests that mostly wait, for TTLs and for servers, and that are
// parallel for this reason: it sets the number that run at once to the constant waiting, regardless of the number of
// processors. The flag -parallel overrides it. It also saves garbage collections: a server in fake time leaves much
// garbage behind and keeps little memory.
func Together() {
	if err := flag.Set("test.parallel", strconv.Itoa(waiting)); err != nil {
		panic(err)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
}

// LeftByClusters returns the goroutines that the client of a Cluster leaves behind: they sleep for up to 5 s before
// they refresh the topology or close a replaced connection.
func LeftByClusters() (all []goleak.Option) {
	const cluster = "github.com/redis/rueidis.(*clusterClient)."
	for _, function := range []string{
		"github.com/redis/rueidis.(*call).DelayDo.func1",
		cluster + "_refresh.func1", cluster + "_refresh.func2", cluster + "redirectOrNew.func1",
	} {
		all = append(all, goleak.IgnoreAnyFunction(function))
	}
	return all
}
