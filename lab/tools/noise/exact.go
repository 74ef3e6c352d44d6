package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// exactChanges take chance and real time out of the Go runtime, as far as they decide the order of goroutines in a
// bubble of testing/synctest on one processor. What a bubble draws comes from two sequences: select statements and
// timers that fire at one moment have their own, which does not depend on how often a map was made.
var exactChanges = []struct{ file, old, new string }{
	{"runtime/rand.go", "func rand() uint64 {\n", `func rand() uint64 {
	if drawn := drawn(&bubbleRand); drawn != 0 {
		return drawn
	}
`},
	{"runtime/rand.go", "// Too much legacy code has go:linkname references", `var bubbleRand, bubbleOrder uint64

//go:linkname seedBubbles
func seedBubbles(seed uint64) { bubbleRand, bubbleOrder = seed, seed }

//go:linkname goroutineID
func goroutineID() int { return int(getg().goid) }

// drawn returns the next number of a splitmix64 sequence for a goroutine in a bubble, else 0.
//
//go:nosplit
func drawn(sequence *uint64) uint64 {
	if *sequence == 0 {
		return 0
	}
	if gp := getg().m.curg; gp == nil || gp.bubble == nil {
		return 0
	}
	*sequence += 0x9e3779b97f4a7c15
	z := *sequence
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31 | 1<<63
}

// ordern returns a number below n.
func ordern(n uint32) uint32 {
	if drawn := drawn(&bubbleOrder); drawn != 0 {
		return uint32(drawn>>16) % n
	}
	return cheaprandn(n)
}

// Too much legacy code has go:linkname references`},
	{"runtime/select.go", "j := cheaprandn(uint32(norder + 1))", "j := ordern(uint32(norder + 1))"},
	{"runtime/time.go", "t.rand = cheaprand()", "t.rand = ordern(1 << 31)"},
	// No goroutine is preempted, however long its thread waits for a processor.
	{"runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000", "const forcePreemptNS = 1 << 60"},
	// A goroutine that has yielded goes on when no other one can, not at every 61st turn of the process.
	{"runtime/proc.go", "if pp.schedtick%61 == 0 && !sched.runq.empty() {", "if false && !sched.runq.empty() {"},
	// A mutex is not handed over because somebody has waited for a millisecond of real time.
	{"internal/sync/mutex.go", "starvationThresholdNs = 1e6", "starvationThresholdNs = 1 << 60"},
}

// exactRuntime returns the changed files of the standard library, by their paths.
func exactRuntime() (map[string]string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, c := range exactChanges {
		path := filepath.Join(strings.TrimSpace(string(root)), "src", filepath.FromSlash(c.file))
		if _, known := files[path]; !known {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			files[path] = string(text)
		}
		if n := strings.Count(files[path], c.old); n != 1 {
			return nil, fmt.Errorf("%s of this Go has the text %q %d times, not once", c.file, c.old, n)
		}
		files[path] = strings.Replace(files[path], c.old, c.new, 1)
	}
	return files, nil
}
