package main

import (
	"bytes"
	"errors"
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
	const root = "../.."
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
		"internal/masterset":  {mutex, channel, callback},
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
