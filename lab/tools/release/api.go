package main

import (
	"fmt"
	"go/ast"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// apiFile has the exported API of the last release, or of a commit before the first release: a line for each name, as
// Go's own api/go1.txt. A removed line is a change that can break a program, a new line is not: a new method changes
// the line of its type only if the type is an interface.
const apiFile = "lab/tools/release/api.txt"

// writeAPI writes the exported API to apiFile.
func writeAPI(repository string) error {
	lines, err := loadAPI(repository)
	if err != nil {
		return err
	}
	text := strings.Join(lines, "\n") + "\n"
	return os.WriteFile(filepath.Join(repository, filepath.FromSlash(apiFile)), []byte(text), 0o666)
}

// changesOfAPI returns the lines that were removed and added since the last release.
func changesOfAPI(repository string) (gone, added []string, err error) {
	text, err := os.ReadFile(filepath.Join(repository, filepath.FromSlash(apiFile)))
	if err != nil {
		return nil, nil, err
	}
	now, err := loadAPI(repository)
	if err != nil {
		return nil, nil, err
	}
	before := strings.Split(strings.TrimSpace(string(text)), "\n")
	return without(before, now), without(now, before), nil
}

func without(lines, others []string) (rest []string) {
	for _, line := range lines {
		if !slices.Contains(others, line) {
			rest = append(rest, line)
		}
	}
	return rest
}

// unannounced returns the lines without an entry in the section [Unreleased] of the changelog. An entry has the name of
// the line in backquotes: `Lease.Release`, `rwlock.Lease.Release` or `Lease.Release(ctx)`.
func unannounced(gone []string, changelog string) (silent []string) {
	next := nextSection(changelog)
	for _, line := range gone {
		within, what, _ := strings.Cut(line, ": ")
		name := strings.Fields(what)[1]
		named := regexp.MustCompile("`(?:" + path.Base(within) + `\.)?` + regexp.QuoteMeta(name) + `\b`)
		if !named.MatchString(next) {
			silent = append(silent, line)
		}
	}
	return silent
}

// loadAPI returns the lines of all packages that are neither programs nor internal.
func loadAPI(repository string) (lines []string, err error) {
	patterns := []string{"./..."}
	for _, folder := range published {
		patterns = append(patterns, "./"+folder+"/...")
	}
	config := &packages.Config{Mode: packages.NeedName | packages.NeedImports | packages.NeedTypes, Dir: repository}
	loaded, err := packages.Load(config, patterns...)
	for _, pkg := range loaded {
		if len(pkg.Errors) > 0 {
			return nil, fmt.Errorf("%s: %w", pkg.PkgPath, pkg.Errors[0])
		}
		if pkg.Name != "main" && !slices.Contains(strings.Split(pkg.PkgPath, "/"), "internal") {
			lines = append(lines, linesOf(pkg.Types)...)
		}
	}
	slices.Sort(lines)
	return lines, err
}

// linesOf returns a line for each exported name, field and method of a package.
func linesOf(pkg *types.Package) (lines []string) {
	within := strings.TrimPrefix(pkg.Path(), path.Dir(rootPath)+"/")
	add := func(kind, name string, t types.Type) {
		text := types.TypeString(nameless(t), types.RelativeTo(pkg))
		lines = append(lines, fmt.Sprintf("%s: %s %s %s", within, kind, name, text))
	}
	for _, name := range pkg.Scope().Names() {
		switch object := pkg.Scope().Lookup(name).(type) {
		case *types.TypeName:
			if object.Exported() {
				linesOfType(object, add)
			}
		case *types.Func:
			if object.Exported() {
				add("func", name, object.Type())
			}
		default: // a variable or a constant; the value may change
			if ast.IsExported(name) {
				add("value", name, object.Type())
			}
		}
	}
	return lines
}

func linesOfType(object *types.TypeName, add func(kind, name string, t types.Type)) {
	name, underlying := object.Name(), object.Type().Underlying()
	structure, is := underlying.(*types.Struct)
	switch {
	case object.IsAlias():
		add("alias", name, object.Type())
	case is && types.Comparable(structure):
		add("comparable-struct", name, types.NewStruct(nil, nil))
	case is:
		add("struct", name, types.NewStruct(nil, nil))
	default:
		add("type", name, underlying)
	}
	if object.IsAlias() {
		return
	}
	if is {
		for field := range structure.Fields() {
			if field.Exported() {
				add("field", name+"."+field.Name(), field.Type())
			}
		}
	}
	if types.IsInterface(underlying) {
		return
	}
	byValue := types.NewMethodSet(object.Type())
	for method := range types.NewMethodSet(types.NewPointer(object.Type())).Methods() {
		switch {
		case !method.Obj().Exported():
		case byValue.Lookup(object.Pkg(), method.Obj().Name()) != nil:
			add("method", name+"."+method.Obj().Name(), method.Type())
		default:
			add("method-of-pointer", name+"."+method.Obj().Name(), method.Type())
		}
	}
}

// nameless returns a type without the names of parameters and results, which callers do not use.
func nameless(t types.Type) types.Type {
	switch t := t.(type) {
	case *types.Signature:
		return types.NewSignatureType(nil, nil, nil, tuple(t.Params()), tuple(t.Results()), t.Variadic())
	case *types.Slice:
		return types.NewSlice(nameless(t.Elem()))
	case *types.Pointer:
		return types.NewPointer(nameless(t.Elem()))
	case *types.Map:
		return types.NewMap(nameless(t.Key()), nameless(t.Elem()))
	case *types.Chan:
		return types.NewChan(t.Dir(), nameless(t.Elem()))
	case *types.Interface:
		methods := make([]*types.Func, 0, t.NumMethods())
		for method := range t.Methods() {
			signature := nameless(method.Type()).(*types.Signature)
			methods = append(methods, types.NewFunc(method.Pos(), method.Pkg(), method.Name(), signature))
		}
		return types.NewInterfaceType(methods, nil).Complete()
	}
	return t
}

func tuple(of *types.Tuple) *types.Tuple {
	var all []*types.Var
	for v := range of.Variables() {
		all = append(all, types.NewParam(v.Pos(), v.Pkg(), "", nameless(v.Type())))
	}
	return types.NewTuple(all...)
}
