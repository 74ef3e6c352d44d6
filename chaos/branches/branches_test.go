package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The page has a row for each branch of the scripts as they are, and a test for each that exists.
func TestThePageHasEveryBranch(t *testing.T) {
	root, err := findRoot()
	require.NoError(t, err)
	all, files, err := load(root)
	require.NoError(t, err)
	require.Greater(t, len(files), 10)
	text, err := os.ReadFile(filepath.Join(root, "docs", "script-branches.md"))
	require.NoError(t, err)
	rest, without := string(text), 0
	tests := testsOf(t, root)
	for _, b := range all {
		_, after, found := strings.Cut(rest, rowBegin(b))
		require.True(t, found, "no row for %s: %s, or in another order", b.file, b.what)
		name, _, _ := strings.Cut(after, " |\n")
		rest = after
		switch kind, corpus, _ := strings.Cut(name, " "); {
		case name == noTest:
			without++
		case kind == "corpus":
			_, err := os.Stat(filepath.Join(root, fuzzFolder, "testdata/corpus", corpus+".jsonl"))
			require.NoError(t, err)
		case kind != "seed":
			require.Contains(t, tests, "func "+name+"(")
		}
	}
	rows, _, _ := strings.Cut(string(text), "\n## Reply codes")
	require.Equal(t, len(all), strings.Count(rows, "\n| `"), "rows of branches")
	require.Zero(t, without, "branches that no test reaches")
}

func testsOf(t *testing.T, root string) string {
	paths, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

func TestBranchesAreFound(t *testing.T) {
	text, found := instrument("local function f(a) -- if\n  if a then return 'end' end\n  for i = 1, 2 do a = i end\n"+
		"  if a == 1 then b() elseif a then c() else d() end\nend\n", 3)
	require.Equal(t, []string{
		"function f(a)", "if a", "not if a", "for i = 1, 2 do", "if a == 1", "elseif a", "else of if a == 1",
	}, found)
	require.Equal(t, 7, strings.Count(text, mark))
	require.Contains(t, text, "f(a)"+call(3)+" -- if\n  if a then"+call(4)+" return 'end' else"+call(5)+"end\n")
	require.Equal(t, 5, strings.Count(text, "\n"), "the lines stay")
}
