package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A mutant whose text is not in the sources any more tests nothing.
func TestEveryMutantFitsTheSources(t *testing.T) {
	root := expect.NoError(findRoot()).In(t)
	all := expect.NoError(load(root)).In(t)
	require.GreaterOrEqual(t, len(all), 40)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			files := expect.NoError(m.apply(root)).In(t)
			for path, text := range files {
				if filepath.Ext(path) == ".go" {
					expect.NoError(parser.ParseFile(token.NewFileSet(), path, text, 0)).In(t)
				}
			}
			for _, c := range []command{m.killer, m.finder} {
				if c.tests() {
					requireTest(t, filepath.Join(root, c.folder), c.pattern)
				}
				if c.explores() {
					requireTest(t, filepath.Join(root, "lab/tools/noise/testdata/scenarios"), c.pattern)
				}
			}
		})
	}
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// requireTest checks that the pattern matches a test of the folder.
func requireTest(t *testing.T, folder, pattern string) {
	t.Helper()
	paths := expect.NoError(filepath.Glob(filepath.Join(folder, "*_test.go"))).In(t)
	named := regexp.MustCompile(strings.Split(pattern, "/")[0])
	found := false
	for _, path := range paths {
		text := expect.NoError(os.ReadFile(path)).In(t)
		for _, match := range testFunction.FindAllSubmatch(text, -1) {
			found = found || named.Match(match[1])
		}
	}
	require.True(t, found, "no test in %s matches %s", folder, pattern)
}

const sample = `breaks: a rule
killed by: go test ./p -run '^TestRule$' -seeds=2
found by: go run -C lab/tools ./noise -explore '^TestA$'
unseen by chaos: why

p/a.lua
- if x then
-   y()
+ if true then
- z

p/b.go
- 	w
+ 	v
+
`

func TestParse(t *testing.T) {
	m := expect.NoError(parse("n", sample)).In(t)
	require.Equal(t, mutant{
		name: "n", breaks: "a rule",
		killer: command{
			text: "go test ./p -run '^TestRule$' -seeds=2", folder: "p", module: "p", pattern: "^TestRule$",
			args: []string{"-test.run", "^TestRule$", "-seeds=2"},
		},
		finder: command{
			text: "go run -C lab/tools ./noise -explore '^TestA$'", folder: "lab/tools/noise", module: "lab/tools",
			pattern: "^TestA$", args: []string{"-explore", "^TestA$"},
		},
		unseen: "why",
		edits: []edit{
			{"p/a.lua", "if x then\n  y()", "if true then"}, {"p/a.lua", "z", ""}, {"p/b.go", "\tw", "\tv\n"},
		},
	}, m)
	m, err := parse("n", strings.Replace(sample, "go test ./p -run '^TestRule$' -seeds=2", chaos+"-for 1m", 1))
	require.NoError(t, err)
	require.False(t, m.killer.tests())
	require.Equal(t, []string{"-for", "1m"}, m.killer.args)
	for _, wrong := range []string{"breaks", "killed by: go test", "p/a.lua\n"} {
		_, err := parse("n", strings.Replace(sample, wrong, "", 1))
		require.Error(t, err, wrong)
	}
	_, err = parse("n", sample[:strings.Index(sample, "p/a.lua")])
	require.Error(t, err, "nothing is replaced")
}

func TestApply(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "a")
	m := mutant{edits: []edit{{"a", "x", "X"}, {"a", "y", ""}}}
	for text, want := range map[string]string{"-x-y-": "-X--", "-x-": "", "-x-x-y-": ""} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		files, err := m.apply(root)
		if want == "" {
			require.Error(t, err, text)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": want}, files)
	}
}

func TestWhatFailedIsNamed(t *testing.T) {
	for want, output := range map[string]string{
		"TestB/c":                "=== RUN   TestA\n--- PASS: TestA\n=== RUN   TestB\n    --- FAIL: TestB/c (0.1s)\n",
		"a panic in TestB":       "=== RUN   TestA\n=== RUN   TestB\npanic: x",
		"schedule 2: it waits":   "=== RUN   TestA\n    explore.go:52: schedule 2: it waits\n--- FAIL: TestA (0.1s)\n",
		"an error: seed 1":       "seed 1\nchaos: seed 1",
		"violation of exclusion": "seed 1\nVIOLATION exclusion: two holders",
		"its exit status":        "",
	} {
		require.Equal(t, want, failureIn(output))
	}
}

// Chaos looks for a mutant first where its files are used, and draws none that its runs cannot reach.
func TestWhereChaosLooks(t *testing.T) {
	of := func(paths ...string) (m mutant) {
		for _, path := range paths {
			m.edits = append(m.edits, edit{path: path})
		}
		return m
	}
	require.Equal(t, everything, runs(of("internal/wire/request.go")))
	all := runs(of("rwlock/mutex_lock.go", "internal/localqueue/queue.go"))
	require.Equal(t, everything, all[len(all)-len(everything):])
	require.Contains(t, all[0], "-forms mutex")
	require.Len(t, all, 3+len(everything), "each run once")

	root := expect.NoError(findRoot()).In(t)
	folders := expect.NoError(foldersOfChaos(root)).In(t)
	require.True(t, folders["scripts"] && folders["internal/engine"] && folders["lab/chaos/check"])
	require.False(t, folders["fencing/sqlguard"] || folders["lockdebug"])
	reached, unseen, elsewhere := of("scripts/vote.lua"), of("scripts/vote.lua"), of("lockdebug/page.go")
	unseen.unseen = "why"
	cfg := config{chaos: true, count: 3}
	require.Equal(t, []mutant{reached}, cfg.choose([]mutant{reached, unseen, elsewhere}, regexp.MustCompile(""), folders))
}
