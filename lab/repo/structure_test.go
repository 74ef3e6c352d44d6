package repo_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
)

// What belongs together stands together: a function with one caller stands in its caller's file, and the methods of a
// type in at most two. A function that is used as a value is a callback, and has no caller.
const (
	maxApart       = 15 // percent of the functions with one caller that stand in another file, for each package
	fewFunctions   = 10 // a package with fewer functions of one caller is not counted
	maxMethodFiles = 2  // with methods of one type
)

// scattered is the type whose methods stand in more files: the concerns of an RWMutex share its mutex and its queue.
const scattered = "rwlock.RWMutex"

// measured are the packages of the module that have enough code to get lost in.
var measured = []string{
	"fencing", "internal", "lockdebug", "redlock", "reentrant", "rwlock", "ticks",
}

func TestFunctionsStandWithTheirCallers(t *testing.T) {
	var wrong []string
	for folder, p := range packages(t) {
		alone, apart := p.oneCaller()
		t.Logf("%s: %d of %d functions with one caller stand in another file", folder, len(apart), alone)
		if alone >= fewFunctions && 100*len(apart) > maxApart*alone {
			wrong = append(wrong, fmt.Sprintf("%s: %d of %d: %v", folder, len(apart), alone, apart))
		}
	}
	require.Empty(t, wrong)
}

func TestMethodsStandTogether(t *testing.T) {
	var wrong []string
	for folder, p := range packages(t) {
		for name, files := range p.methodFiles() {
			if len(files) > maxMethodFiles && folder+"."+name != scattered {
				wrong = append(wrong, fmt.Sprintf("%s.%s: %v", folder, name, files))
			}
		}
	}
	require.Empty(t, wrong)
}

func TestStructureRulesNoticeWhatBreaksThem(t *testing.T) {
	p := check(t, map[string][]byte{
		"a.go": []byte("package p; type T int; func (T) near() {}; " +
			"func (t T) F() { t.near(); t.far(); both(); G(callback) }"),
		"b.go": []byte("package p; func (T) far() {}; func both() { recurse() }; func callback() {}; func G(func()) {}"),
		"c.go": []byte("package p; func (T) H() {}; func recurse() { recurse() }; " +
			"func newC() c { return newD() }; type c int"),
		"d.go": []byte("package p; func F() { newC() }; func newD() c { return 0 }"),
	})
	alone, apart := p.oneCaller()
	require.Equal(t, 6, alone, "near, far, both, recurse, newC and newD, and not callback")
	require.Equal(t, []string{"both", "far", "newC", "newD", "recurse"}, apart)
	require.Equal(t, map[string][]string{"T": {"a.go", "b.go", "c.go"}}, p.methodFiles())
}

// goPackage is one package without its tests.
type goPackage struct {
	positions *token.FileSet
	files     []*ast.File
	info      *types.Info
}

// packages returns the measured packages by their folders.
func packages(t *testing.T) map[string]goPackage {
	t.Helper()
	texts := map[string]map[string][]byte{}
	for path, text := range files(t, ".go") {
		path = filepath.ToSlash(path)
		top, _, _ := strings.Cut(path, "/")
		if !slices.Contains(measured, top) || strings.HasSuffix(path, "_test.go") {
			continue
		}
		folder := filepath.ToSlash(filepath.Dir(path))
		if texts[folder] == nil {
			texts[folder] = map[string][]byte{}
		}
		texts[folder][filepath.Base(path)] = text
	}
	require.NotEmpty(t, texts)
	all := map[string]goPackage{}
	for folder, texts := range texts {
		all[folder] = check(t, texts)
	}
	return all
}

// check parses a package and resolves its own names. What it imports is left out: only calls inside the package count.
func check(t *testing.T, texts map[string][]byte) goPackage {
	t.Helper()
	p := goPackage{positions: token.NewFileSet(), info: &types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
	}}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		file := expect.NoError(parser.ParseFile(p.positions, name, texts[name], parser.SkipObjectResolution)).In(t)
		p.files = append(p.files, file)
	}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	_, _ = config.Check("p", p.positions, p.files, p.info) // its errors come from the imports
	return p
}

// noImports makes every imported package an empty one.
type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}

func (p goPackage) file(of token.Pos) string { return p.positions.Position(of).Filename }

// oneCaller returns how many unexported functions and methods exactly one other function uses, and which of these
// functions stand in another file than their caller.
func (p goPackage) oneCaller() (alone int, apart []string) {
	users := map[*types.Func]map[*ast.FuncDecl]bool{}
	values := map[*types.Func]bool{}
	for _, file := range p.files {
		for _, decl := range file.Decls {
			user, _ := decl.(*ast.FuncDecl) // nil for a variable: its functions have no caller that is a function
			calls := map[*ast.Ident]bool{}
			ast.Inspect(decl, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					calls[called(call.Fun)] = true
				}
				name, ok := n.(*ast.Ident)
				if !ok {
					return true
				}
				used, ok := p.info.Uses[name].(*types.Func)
				if !ok || used.Exported() || user != nil && p.info.Defs[user.Name] == used {
					return true
				}
				used = used.Origin()
				values[used] = values[used] || !calls[name]
				if users[used] == nil {
					users[used] = map[*ast.FuncDecl]bool{}
				}
				users[used][user] = true
				return true
			})
		}
	}
	for used, users := range users {
		for user := range users {
			if len(users) > 1 || user == nil || values[used] || p.file(used.Pos()) == "" {
				continue
			}
			alone++
			if p.file(used.Pos()) != p.file(user.Pos()) {
				apart = append(apart, used.Name())
			}
		}
	}
	slices.Sort(apart)
	return alone, apart
}

// called returns the name in the function of a call, or nil.
func called(f ast.Expr) *ast.Ident {
	switch f := f.(type) {
	case *ast.Ident:
		return f
	case *ast.SelectorExpr:
		return f.Sel
	case *ast.IndexExpr:
		return called(f.X)
	default:
		return nil
	}
}

// methodFiles returns the files with methods of each type.
func (p goPackage) methodFiles() map[string][]string {
	all := map[string][]string{}
	for _, file := range p.files {
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			name := receiver(f.Recv.List[0].Type)
			if at := p.file(f.Pos()); !slices.Contains(all[name], at) {
				all[name] = append(all[name], at)
			}
		}
	}
	return all
}

func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	default:
		return fmt.Sprint(of)
	}
}
