package repo_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
)

// wanted are examples that a reader of pkg.go.dev looks for first.
var wanted = []string{
	"rwlock.", "rwlock.Locker_Adopt", "rwlock.Locker_Ping", "rwlock.Completed", "rwlock.WithLinger", "rwlock.WithMaxWait",
	"rwlock.WithMaxHold", "rwlock.WithTTL", "locktest.", "fencing/sqlguard.Guard_Do",
	"fencing/sqlguard.Dialect_CheckUpdate", "ticks.",
}

// pkg.go.dev shows an example as a program and runs it if it names nothing of another file of its tests.
func TestExamplesRunOnTheirPage(t *testing.T) {
	shown := map[string]bool{}
	for path, text := range files(t, "_test.go") {
		file := expect.NoError(parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)).In(t)
		folder := filepath.ToSlash(filepath.Dir(path))
		if folder == "fencing/sqlguard/sqltest" { // nobody imports it
			continue
		}
		for _, example := range doc.Examples([]*ast.File{file}...) {
			require.NotNil(t, example.Play, "%s: Example%s names what stands in another file", path, example.Name)
			if _, whole := example.Code.(*ast.File); whole {
				require.Empty(t, undeclared(file), "%s: Example%s is this file alone", path, example.Name)
			}
			shown[folder+"."+example.Name] = true
		}
	}
	for _, name := range wanted {
		require.True(t, shown[name], "there is no example %s", name)
	}
}

// undeclared returns the names of a file that it neither declares nor imports.
func undeclared(file *ast.File) (names []string) {
	known := map[string]bool{}
	for _, imported := range file.Imports {
		name := filepath.Base(versionOfPath.ReplaceAllString(strings.Trim(imported.Path.Value, `"`), ""))
		if imported.Name != nil {
			name = imported.Name.Name
		}
		known[name] = true
	}
	for _, id := range file.Unresolved {
		if !known[id.Name] && types.Universe.Lookup(id.Name) == nil {
			names = append(names, id.Name)
		}
	}
	return names
}

var versionOfPath = regexp.MustCompile(`/v[0-9]+$`)
