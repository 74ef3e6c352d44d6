//go:build !exact

package explore

import (
	"bytes"
	"runtime"
	"strconv"
	"testing"
)

// mostRepeated bounds how often a schedule runs again because it left its choices. The runtime leaves some to chance: a
// select statement draws one of the cases that are ready, timers of one moment fire in any order.
const mostRepeated = 100

// warmUps is how many runs come before the first schedule.
const warmUps = 0

func prepare(*testing.T) {}

func goroutineID() int {
	text := make([]byte, 64)
	text = bytes.TrimPrefix(text[:runtime.Stack(text, false)], []byte("goroutine "))
	id, err := strconv.Atoi(string(text[:bytes.IndexByte(text, ' ')]))
	if err != nil {
		panic(err)
	}
	return id
}
