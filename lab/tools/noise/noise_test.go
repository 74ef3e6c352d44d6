package main

import (
	"bytes"
	"errors"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The fixture has each shape. The expected texts show what a variant makes of it.
func TestShapes(t *testing.T) {
	var reports []report
	for name, v := range map[string]variant{"fixture.noise": {}, "fixture.explore": {explore: true}} {
		folder := t.TempDir()
		r, err := write(folder, ".", []string{"testdata/fixture"}, v)
		require.NoError(t, err)
		is, err := os.ReadFile(filepath.Join(folder, "testdata", "fixture", "fixture.go"))
		require.NoError(t, err)
		expected, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		require.Equal(t, string(expected), string(is), name)
		build(t, folder, ".", "./testdata/fixture")
		if !v.explore {
			reports = r
		}
	}

	var printed bytes.Buffer
	printReports(&printed, reports)
	require.Equal(t, `
           package  mutex  atomic  sync  channel  callback  go  points
  testdata/fixture      8      11     1        6         6   1      61
no point: testdata/fixture/fixture.go:72: c.n.Load is not called here
no point: testdata/fixture/fixture.go:73: c.guard.Unlock is not called here
`[1:], printed.String())
}

// A package with another meaning of the name would get calls of something else.
func TestNameIsTaken(t *testing.T) {
	_, err := write(t.TempDir(), ".", []string{"testdata/taken"}, variant{})
	require.ErrorContains(t, err, "taken.go:3:1: the name schedulenoise is taken")
	_, err = write(t.TempDir(), ".", []string{"testdata"}, variant{})
	require.ErrorContains(t, err, "no Go files")
}

// build compiles the packages with the overlay.
func build(t *testing.T, folder, root string, packages ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"build", "-overlay", filepath.Join(folder, "overlay.json")}, packages...)...)
	cmd.Dir = root
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// Each operation that a search in the text finds has a point in its line.
func TestPackages(t *testing.T) {
	const root = "../../.."
	folder := t.TempDir()
	reports, err := write(folder, root, packages, variant{})
	require.NoError(t, err)
	expected := map[string][]kind{
		"rwlock":              {mutex, atomic, syncOther, channel, callback},
		"reentrant":           {mutex, syncOther, channel, callback},
		"internal/engine":     {mutex, atomic, syncOther, channel, callback},
		"internal/localqueue": {atomic, channel, callback},
		"internal/transport":  {mutex, atomic, syncOther, channel, callback, goroutine},
		"internal/events":     {mutex, atomic, channel, callback, goroutine},
		"internal/timerqueue": {mutex, channel, callback},
		"internal/ballot":     {callback}, // pure
		"internal/ctxend":     {mutex, callback},
		"internal/crowd":      {mutex, atomic},
		"internal/masterset":  {mutex, channel, callback},
		"internal/releases":   {mutex, atomic, callback},
		"internal/admin":      {syncOther, channel, callback},
	}
	for _, r := range reports {
		require.Empty(t, r.without)
		for _, k := range kinds {
			require.Equal(t, slices.Contains(expected[r.folder], k), r.operations[k] > 0, "%s: %s", r.folder, k)
		}
	}
	found := 0
	for _, p := range packages {
		sources, err := filepath.Glob(filepath.Join(root, p, "*.go"))
		require.NoError(t, err)
		for _, source := range sources {
			if !strings.HasSuffix(source, "_test.go") {
				found += requirePoints(t, source, filepath.Join(folder, p, filepath.Base(source)))
			}
		}
	}
	require.Greater(t, found, 300)
	args := make([]string, len(packages))
	for i, p := range packages {
		args[i] = "./" + p
	}
	build(t, folder, root, args...)
}

var orders = regexp.MustCompile(`\.(Try)?R?(Lock|Unlock)\(\)|\.(Load|Store|Swap|CompareAndSwap)\(` +
	`|^\s*(defer )?close\(|\bselect \{|<-`)

// alike are no operations: the types of channels, and Key.Lock of package wire.
var alike = regexp.MustCompile(`<-chan|chan<-|[kK]ey(\(\))?\.Lock\(\)`)

// requirePoints returns how many lines have an operation.
func requirePoints(t *testing.T, source, copied string) (found int) {
	t.Helper()
	was, err := os.ReadFile(source)
	require.NoError(t, err)
	is, err := os.ReadFile(copied)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	lines := strings.Split(string(is), "\n")
	for i, line := range strings.Split(string(was), "\n") {
		code, _, _ := strings.Cut(line, "//")
		code = alike.ReplaceAllString(code, "")
		if orders.MatchString(code) {
			found++
			require.Greater(t, len(lines), i, "%s:%d: %s", source, i+1, code)
			require.Contains(t, lines[i], pointPackage, "%s:%d", source, i+1)
		}
	}
	return found
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tried runs scenarios of the parts of a locker. It returns the output, and whether all passed.
func tried(t *testing.T, pattern string, changed map[string]string) (output string, passed bool) {
	t.Helper()
	var text bytes.Buffer
	e := exploration{
		root: "../../..", packages: []string{"internal/localqueue", "internal/engine"}, changed: changed, pattern: pattern,
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

// The scenarios of whole lockers fit the packages. They take minutes, so they run by hand.
func TestScenariosOfLockersFit(t *testing.T) {
	var output bytes.Buffer
	e := exploration{root: "../../..", packages: explored, pattern: "^$"}
	require.NoError(t, e.run(t.TempDir(), &output), "%s", &output)
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
			text, err := os.ReadFile(filepath.Join("..", "..", "..", c.file))
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
