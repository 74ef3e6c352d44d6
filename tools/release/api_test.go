package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A user who upgrades reads the changelog.
func TestIncompatibleChangesAreInTheChangelog(t *testing.T) {
	repository, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	changelog, err := os.ReadFile(filepath.Join(repository, "CHANGELOG.md"))
	require.NoError(t, err)
	gone, _, err := changesOfAPI(repository)
	require.NoError(t, err)
	require.Empty(t, unannounced(gone, string(changelog)),
		"name them in backquotes in the section [Unreleased] of CHANGELOG.md")
}

func TestWhatAChangelogHasToName(t *testing.T) {
	const before = `
		type Lease struct{ id string }
		func (l *Lease) Release(wait bool) error { return nil }
		func (l *Lease) Name() string { return "" }
		type Stats struct{ Lost int }
		type Source interface { Next() int }
		type Hooks struct { Lost func(name string, tokens map[string][]func(x int)) }
		func New() *Lease { return nil }`
	for _, c := range []struct{ name, old, now, changelog, silent string }{
		{"nothing has changed", "", "", "", ""},
		{"a function is new", "func New", "func Old() {}; func New", "", ""},
		{"a method is new", "type Stats", "func (l Lease) Old() {}; type Stats", "", ""},
		{"a field is new", "Lost int", "Lost int; Won int", "", ""},
		{"a private field is new", "id string }", "id string; n int }", "", ""},
		{"parameters have other names", "name string, tokens map", "n string, t map", "", ""},
		{"a nested one has another name", "func(x int)", "func(int)", "", ""},
		{"a method is gone", "Name() string", "name() string", "", "Lease.Name func() string"},
		{"a method that is named", "Name() string", "name() string", "`Lease.Name` is gone", ""},
		{"named with its package", "Name() string", "name() string", "`p.Lease.Name()` is gone", ""},
		{"a longer name", "Name() string", "name() string", "`Lease.Names` is new", "Lease.Name func() string"},
		{"no backquotes", "Name() string", "name() string", "Lease.Name is gone", "Lease.Name func() string"},
		{
			"named for the last release", "Name() string", "name() string", "Else.\n\n## [0.1.0]\n`Lease.Name`",
			"Lease.Name func() string",
		},
		{"a field has another type", "Lost int", "Lost string", "", "field Stats.Lost int"},
		{"a signature is another", "wait bool", "wait ...bool", "", "Lease.Release func(bool) error"},
		{"a method of the pointer alone", "(l *Lease) Name", "(l Lease) Name", "", "method-of-pointer Lease.Name"},
		{"a struct that cannot be compared", "id string }", "id []string }", "", "comparable-struct Lease struct{}"},
		{"an interface gets a method", "Next() int", "Next() int; Close()", "", "type Source interface{Next() int}"},
		{"a callback gets an argument", "Lost func(", "Lost func(n int, ", "", "field Hooks.Lost func(string, "},
	} {
		t.Run(c.name, func(t *testing.T) {
			was := linesOf(typed(t, before))
			gone := without(was, linesOf(typed(t, strings.Replace(before, c.old, c.now, 1))))
			silent := unannounced(gone, "# Changelog\n\n## [Unreleased]\n\n"+c.changelog)
			if c.silent == "" {
				require.Empty(t, silent)
				return
			}
			require.Len(t, silent, 1)
			require.Contains(t, silent[0], c.silent)
		})
	}
}

func TestTheChangelogOfARelease(t *testing.T) {
	const heading = "# Changelog\n\nWords.\n\n## [Unreleased]\n"
	day := time.Date(2031, 2, 3, 4, 5, 6, 7, time.UTC)
	path := filepath.Join(t.TempDir(), "CHANGELOG.md")

	write(t, path, heading+"\n- New.\n\n## [0.1.0] - 2030-01-01\n\n- Old.\n")
	require.NoError(t, editChangelog(path, "v0.2.0", day))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, heading+"\n## [0.2.0] - 2031-02-03\n\n- New.\n\n## [0.1.0] - 2030-01-01\n\n- Old.\n", string(text))

	require.ErrorContains(t, editChangelog(path, "v0.3.0", day), "has no text")
	write(t, path, "# Changelog\n")
	require.ErrorContains(t, editChangelog(path, "v0.3.0", day), "has no text")
}

func typed(t *testing.T, text string) *types.Package {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", "package p\n"+text, 0)
	require.NoError(t, err)
	pkg, err := new(types.Config).Check("example.com/p", files, []*ast.File{file}, nil)
	require.NoError(t, err)
	return pkg
}
