//go:build exact

package explore

import (
	"runtime"
	"runtime/debug"
	"testing"
	"testing/cryptotest"
	_ "unsafe" // for go:linkname
)

// mostRepeated is none: the runtime leaves nothing to chance, so a schedule that leaves its choices is a fault.
const mostRepeated = 0

// warmUps is one run, which makes what a process makes once.
const warmUps = 1

// prepare has the next schedule begin as every other one: nothing is drawn so far, every pool is empty, and no garbage
// is collected before its end.
func prepare(t *testing.T) {
	debug.SetGCPercent(-1)
	runtime.GC()
	runtime.GC() // a pool keeps its elements over one collection
	cryptotest.SetGlobalRandom(t, 1)
	seed(1)
}

// seed has the goroutines of bubbles draw the same numbers from now on.
//
//go:linkname seed runtime.seedBubbles
func seed(uint64)

// goroutineID reads what the stack trace of a goroutine shows, without the trace.
//
//go:linkname goroutineID runtime.goroutineID
func goroutineID() int
