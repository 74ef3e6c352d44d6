package main

import (
	"bytes"
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tried runs scenarios of the parts of a locker. It returns the output, and whether all passed.
func tried(t *testing.T, pattern string, changed map[string]string) (output string, passed bool) {
	t.Helper()
	var text bytes.Buffer
	e := exploration{
		root: "../..", packages: []string{"internal/localqueue", "internal/engine"}, changed: changed, pattern: pattern,
	}
	err := e.run(t.TempDir(), &text)
	require.Contains(t, text.String(), "=== RUN", "%v\n%s", err, &text)
	return text.String(), err == nil
}

// The changes that take chance out of the runtime fit the Go that is installed.
func TestExactRuntime(t *testing.T) {
	files, err := exactRuntime()
	require.NoError(t, err)
	require.Len(t, files, 5)
	for path, text := range files {
		formatted, err := format.Source([]byte(text))
		require.NoError(t, err, path)
		require.NotEmpty(t, formatted)
	}
}

// All scenarios pass in every schedule within their bounds.
func TestSchedules(t *testing.T) {
	output, passed := tried(t, "Test.*", nil)
	require.True(t, passed, output)
	t.Log(output)
}

// The first of these faults was in the code once.
func TestSchedulesFindFaults(t *testing.T) {
	for name, c := range map[string]struct{ file, old, new, scenario, failure string }{
		"a reader departs by a second look at the count": {
			file: "internal/localqueue/queue.go",
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
			file: "internal/localqueue/queue.go",
			old:  "		if state == next || r.state.CompareAndSwap(state, next) {\n",
			new:  "		if r.state.Store(next); true {\n",

			scenario: "TestReadersJoinOneThatLeaves",
			failure:  "readers are counted",
		},
		"the deferred calls are taken after the unlock": {
			file:     "internal/engine/lease.go",
			old:      "	d := g.deferred\n	g.deferred = nil\n	g.mu.Unlock()\n	if",
			new:      "	g.mu.Unlock()\n	d := g.deferred\n	g.deferred = nil\n	if",
			scenario: "TestDeferredCalls",
			failure:  "returned after the calls",
		},
		"the deferred calls run under the mutex": {
			file:     "internal/engine/lease.go",
			old:      "	g.mu.Unlock()\n	if d != nil {\n		d.runAll()\n	}\n",
			new:      "	if d != nil {\n		d.runAll()\n	}\n	g.mu.Unlock()\n",
			scenario: "TestDeferredCalls",
			failure:  "waits for ever",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", c.file))
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), c.old))
			output, passed := tried(t, "^"+c.scenario+"$",
				map[string]string{c.file: strings.Replace(string(text), c.old, c.new, 1)})
			require.False(t, passed)
			require.Contains(t, output, c.failure)
			t.Log(output)
		})
	}
}
