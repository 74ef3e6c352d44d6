// Package schedulenoise lets other goroutines run where their order matters. The overlay of command noise has the code
// under test call it.
//
// The environment variable FENCELOCK_NOISE switches it on. A number is the seed; any other text draws one. The seed
// stands on the standard error. It repeats the draws, though not the machine's schedule.
package schedulenoise

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"time"
)

// Variable is the name of the environment variable.
const Variable = "FENCELOCK_NOISE"

const (
	yields  = 4   // one point in so many yields
	sleeps  = 256 // one point in so many sleeps
	longest = 400 * time.Microsecond
)

var on, state = start(os.Getenv(Variable))

func start(value string) (on bool, seed uint64) {
	if value == "" {
		return false, 0
	}
	seed, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	fmt.Fprintf(os.Stderr, "%s=%d\n", Variable, seed)
	return true, seed
}

// hook is called at each point instead of the noise.
var hook func(ready func() bool)

// OnPoint has each point call f from now on, or make noise again if f is nil. The function that a point gives to f
// reports whether the lock is free that the goroutine takes next; it is nil before everything else. OnPoint must not be
// called while goroutines reach points.
func OnPoint(f func(ready func() bool)) { hook = f }

// BeforeLock is a point before a lock is taken.
func BeforeLock(tryLock func() bool, unlock func()) {
	if hook == nil {
		Point()
		return
	}
	hook(func() bool {
		free := tryLock()
		if free {
			unlock()
		}
		return free
	})
}

// Point yields the processor or puts the thread to sleep, both rarely, and mostly does nothing.
func Point() {
	if hook != nil {
		hook(nil)
		return
	}
	if !on {
		return
	}
	switch r := draw(); {
	case r%sleeps == 0:
		sleep(time.Duration(r / sleeps % uint64(longest)))
	case r%yields == 1:
		runtime.Gosched()
	}
}

// After is a point behind an expression. It returns the expression's value.
func After[T any](value T) T {
	Point()
	return value
}

// draw returns the next number of a splitmix64 sequence. Goroutines share the state without an atomic or a mutex:
// either would order them for the race detector, which would then miss the races of the code under test. Two goroutines
// that draw the same number do no harm.
//
//go:norace
func draw() uint64 {
	state += 0x9e3779b97f4a7c15
	z := state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
