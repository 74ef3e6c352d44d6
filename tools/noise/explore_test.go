package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exported gives the scenarios what the engine does not export. Those that need it have the build tag explore.
const exported = `package engine

type Guard = guard

func (g *guard) AfterUnlock(f func()) { g.afterUnlock(f) }
`

// explored runs a scenario, or all, with points for package explore. It returns the output, and whether all passed.
func explored(t *testing.T, scenario string, changed map[string]string) (output string, passed bool) {
	t.Helper()
	changed["internal/engine/explore.go"] = exported
	folder := t.TempDir()
	_, err := write(folder, "../..", []string{"internal/localqueue", "internal/engine"},
		variant{explore: true, changed: changed})
	require.NoError(t, err)
	text, err := exec.Command("go", "test", "-overlay", filepath.Join(folder, "overlay.json"), "-tags=explore",
		"-count=1", "-v", "-run", "^"+scenario+"$", "./testdata/scenarios").CombinedOutput()
	require.Contains(t, string(text), "=== RUN", "%s", text)
	return string(text), err == nil
}

// All scenarios pass in every schedule within their bounds.
func TestSchedules(t *testing.T) {
	output, passed := explored(t, "Test.*", map[string]string{})
	require.True(t, passed, output)
	t.Log(output)
}

// The first of these faults was in the code once.
func TestSchedulesFindFaults(t *testing.T) {
	for name, c := range map[string]struct{ file, old, new, scenario, failure string }{
		"a reader departs by a second look at the count": {
			file: "internal/localqueue/readers.go",
			old:  "	state, held := r.change(afterDepart)\n	return held, held && state < reader\n",
			new: `	if r.leave() {
		return true, false
	}
	for {
		switch state := r.state.Load(); {
		case state < reader:
			return false, false
		case state >= 2*reader:
			return r.leave(), false
		case r.state.CompareAndSwap(state, closed):
			return true, true
		}
	}
`,
			scenario: "TestReaderJoinsOneThatLeaves",
			failure:  "leaves, and is told that it is not inside",
		},
		"a reader counts itself in two steps": {
			file: "internal/localqueue/readers.go",
			old:  "		if state == next || r.state.CompareAndSwap(state, next) {\n",
			new:  "		if r.state.Store(next); true {\n",

			scenario: "TestReadersJoinOneThatLeaves",
			failure:  "readers are counted",
		},
		"the deferred calls are taken after the unlock": {
			file:     "internal/engine/lease.go",
			old:      "	d := g.deferred\n	g.deferred = nil\n	g.mu.Unlock()\n",
			new:      "	g.mu.Unlock()\n	d := g.deferred\n	g.deferred = nil\n",
			scenario: "TestDeferredCalls",
			failure:  "returned after the calls",
		},
		"the deferred calls run under the mutex": {
			file:     "internal/engine/lease.go",
			old:      "	g.mu.Unlock()\n	for ; d != nil; d = d.next {\n		d.run()\n	}\n",
			new:      "	for ; d != nil; d = d.next {\n		d.run()\n	}\n	g.mu.Unlock()\n",
			scenario: "TestDeferredCalls",
			failure:  "waits for ever",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", c.file))
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), c.old))
			output, passed := explored(t, c.scenario,
				map[string]string{c.file: strings.Replace(string(text), c.old, c.new, 1)})
			require.False(t, passed)
			require.Contains(t, output, c.failure)
			t.Log(output)
		})
	}
}
