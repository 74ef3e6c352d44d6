// Package trace counts the functions that the code under test enters. The overlay of the test of package flows has each
// function of the product call Enter.
package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

var (
	mu    sync.Mutex
	calls map[string]int // by file and function; nil while nothing is counted
)

// Enter counts a call of a function, which is named by its file and, after a space, its name.
func Enter(function string) {
	mu.Lock()
	defer mu.Unlock()
	if calls != nil {
		calls[function]++
	}
}

// Start begins to count.
func Start() {
	mu.Lock()
	defer mu.Unlock()
	calls = map[string]int{}
}

// Flow is what was entered between Start and Stop.
type Flow struct {
	Functions, Files, Calls int
	All                     string // each function with its calls, a line each
}

// Stop ends the count.
func Stop() (f Flow) {
	mu.Lock()
	defer mu.Unlock()
	files := map[string]bool{}
	for _, function := range slices.Sorted(maps.Keys(calls)) {
		file, _, _ := strings.Cut(function, " ")
		files[file] = true
		f.Functions++
		f.Calls += calls[function]
		f.All += fmt.Sprintf("%6d %s\n", calls[function], function)
	}
	f.Files, calls = len(files), nil
	return f
}
