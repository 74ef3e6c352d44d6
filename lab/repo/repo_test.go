package repo_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
)

// The tests see the repository from its top, and name files as its pages do.
func TestMain(m *testing.M) {
	if err := os.Chdir(filepath.Join("..", "..")); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// The repository's own rules, as far as a machine can check them. Each rule takes one file's text and returns what is
// wrong with it, so that the rules themselves are tested below on texts that break them.

func TestNoPathOfAPrivateMachine(t *testing.T) {
	for path, text := range files(t, "") {
		if bytes.IndexByte(text, 0) >= 0 {
			continue // a picture, not text
		}
		require.Empty(t, privatePath(text), path)
	}
}

func TestEveryTestedPackageLooksForLeaks(t *testing.T) {
	guarded := map[string]bool{}
	for path, text := range files(t, "_test.go") {
		folder := filepath.Dir(path)
		guarded[folder] = guarded[folder] || checksLeaks(t, text)
	}
	for folder, ok := range guarded {
		require.True(t, ok, "no TestMain with goleak in %s", folder)
	}
}

func TestImportsStayWhereTheyBelong(t *testing.T) {
	for path, text := range files(t, ".go") {
		require.Empty(t, misplacedImports(t, path, text), path)
	}
}

// A test file that is named after a fault has the number of a row.
func TestEveryFaultIsInTheCatalogue(t *testing.T) {
	page := expect.NoError(os.ReadFile("docs/comparison.md")).In(t)
	var tests []string
	for path := range files(t, "_test.go") {
		tests = append(tests, filepath.ToSlash(path))
	}
	require.Empty(t, wrongInCatalogue(string(page), tests))
}

// namedPath is a path of the repository in a page: in backquotes, with a slash, without a pattern or a version.
var namedPath = regexp.MustCompile("`((?:rwlock|redlock|reentrant|lockdebug|fencing|internal|scripts|bench|lab|" +
	"docs)/[a-zA-Z_/]+[a-zA-Z0-9_/-]*(?:\\.go|\\.lua|\\.md)?)`")

func TestContributingNamesWhatThereIs(t *testing.T) {
	page := expect.NoError(os.ReadFile("CONTRIBUTING.md")).In(t)
	named := namedPath.FindAllSubmatch(page, -1)
	require.Greater(t, len(named), 30)
	for _, path := range named {
		expect.NoError(os.Stat(string(path[1]))).In(t)
	}
}

func TestRulesNoticeWhatBreaksThem(t *testing.T) {
	for _, path := range []string{"home/ann/src", "Users/ann/src", "root/.cache", "work/main"} {
		require.NotEmpty(t, privatePath([]byte("see /"+path)))
		require.NotEmpty(t, privatePath([]byte("/"+path)))
	}
	require.Empty(t, privatePath([]byte("https://example.org/home/ann and ./work/main and a/root/b")))

	require.True(t, checksLeaks(t, []byte("package p\nfunc TestMain(m *testing.M) { goleak.VerifyTestMain(m) }")))
	require.False(t, checksLeaks(t, []byte("package p\nfunc TestMain(m *testing.M) { os.Exit(m.Run()) }")))
	require.False(t, checksLeaks(t, []byte("package p\n// func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }")))

	testify := []byte(`package p; import "github.com/stretchr/testify/require"`)
	require.NotEmpty(t, misplacedImports(t, "rwlock/a.go", testify))
	require.Empty(t, misplacedImports(t, "rwlock/a_test.go", testify))
	require.Empty(t, misplacedImports(t, "bench/a.go", testify))
	kit := []byte(`package p; import "github.com/seed74116694/fencelock/internal/test/testkit"`)
	require.NotEmpty(t, misplacedImports(t, "rwlock/a.go", kit))
	ours := []byte(`package p; import ("context"; "github.com/redis/rueidis")`)
	require.NotEmpty(t, misplacedImports(t, "fencing/a.go", ours))
	require.Empty(t, misplacedImports(t, "rwlock/a.go", ours))
}

func TestTheCatalogueNoticesWhatBreaksIt(t *testing.T) {
	const one, two = "p/fault_07_a_test.go", "p/fault_08_test.go"
	const page = "# Faults\n| 7 | fault | rule |\n"
	require.Empty(t, wrongInCatalogue(page, []string{one, "p/c_test.go"}))
	require.Equal(t, []string{two}, wrongInCatalogue(page, []string{one, two}))
}

// files returns the text of every file whose name ends in suffix, by path. It fails if there is none.
func files(t *testing.T, suffix string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			hidden := strings.HasPrefix(name, ".") && name != "." && name != ".ci"
			if hidden || strings.HasSuffix(path, "testdata/releases") { // the scripts of releases stay as they were
				return filepath.SkipDir
			}
			return nil
		}
		// In a worktree .git is a file of git's own, which says where the repository is.
		if !entry.Type().IsRegular() || !strings.HasSuffix(name, suffix) || name == ".git" {
			return nil
		}
		found[path], err = os.ReadFile(path)
		return err
	})
	require.NoError(t, err)
	require.NotEmpty(t, found, "files that end in %q", suffix)
	return found
}

// Only where a path begins: the same words inside an address or a relative path are nobody's folder.
var private = regexp.MustCompile(`(?m)(?:^|[^\w./~-])(/(?:home|Users|root|work)/[\w.-]+)`)

func privatePath(text []byte) string {
	match := private.FindSubmatch(text)
	if match == nil {
		return ""
	}
	return string(match[1])
}

// checksLeaks reports whether a test file has a TestMain that calls something of goleak.
func checksLeaks(t *testing.T, text []byte) bool {
	t.Helper()
	found := false
	for _, decl := range parse(t, text).Decls {
		main, ok := decl.(*ast.FuncDecl)
		if !ok || main.Recv != nil || main.Name.Name != "TestMain" {
			continue
		}
		ast.Inspect(main, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok {
				pkg, ok := selector.X.(*ast.Ident)
				found = found || ok && pkg.Name == "goleak"
			}
			return true
		})
	}
	return found
}

// wrongInCatalogue returns the test files that are named after a fault without a row in the page.
func wrongInCatalogue(page string, tests []string) (wrong []string) {
	for _, test := range tests {
		name, ok := strings.CutPrefix(filepath.Base(test), "fault_")
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(strings.TrimLeft(name, "0"), "_")
		if !strings.Contains(page, "\n| "+number+" |") {
			wrong = append(wrong, test)
		}
	}
	return wrong
}

var testOnly = []string{
	"github.com/stretchr/testify", "github.com/alicebob/miniredis", "go.uber.org/goleak",
	"github.com/seed74116694/fencelock/internal/test/testkit",
}

// misplacedImports returns the imports that a file at this path must not have: modules that only tests need, and in the
// core of fencing whatever is not the standard library, so that a storage service can take it without taking a client.
func misplacedImports(t *testing.T, path string, text []byte) []string {
	t.Helper()
	slashed := "/" + filepath.ToSlash(path)
	if strings.HasSuffix(path, "_test.go") {
		return nil
	}
	forTests := strings.Contains(slashed, "/bench/") || strings.Contains(slashed, "/internal/test/testredis/") ||
		strings.Contains(slashed, "/internal/test/testkit/") || strings.Contains(slashed, "/locktest/")
	core := filepath.ToSlash(filepath.Dir(path)) == "fencing"

	var misplaced []string
	for _, spec := range parse(t, text).Imports {
		imported := expect.NoError(strconv.Unquote(spec.Path.Value)).In(t)
		outside := strings.Contains(strings.SplitN(imported, "/", 2)[0], ".")
		ofTests := slices.ContainsFunc(testOnly, func(module string) bool { return strings.HasPrefix(imported, module) })
		if core && outside || ofTests && !forTests {
			misplaced = append(misplaced, imported)
		}
	}
	return misplaced
}

func parse(t *testing.T, text []byte) *ast.File {
	t.Helper()
	return expect.NoError(parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)).In(t)
}
