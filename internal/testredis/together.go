package testredis

import (
	"flag"
	"os"
	"runtime/debug"
	"strconv"
)

// waiting is how many parallel tests of a package run at once, see Together.
const waiting = 8

// Together is for the TestMain of a package with tests that mostly wait, for TTLs and for servers, and that are
// parallel for this reason: they run beside each other, however few processors there are. The flag -parallel changes
// that. It also saves garbage collections: what a server in fake time leaves behind is much, and what it keeps is
// little.
func Together() {
	if err := flag.Set("test.parallel", strconv.Itoa(waiting)); err != nil {
		panic(err)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
