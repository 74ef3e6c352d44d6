package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// report says what was done to one package.
type report struct {
	folder     string
	operations map[kind]int // that have a point before them, after them, or both
	points     int
	without    []string // operations that have none: where, and what
}

// variant is the kind of an overlay.
type variant struct {
	explore bool              // one point after each operation and one before each lock, as package explore needs
	changed map[string]string // by their paths below the root, the texts of files that the overlay changes or adds
	library map[string]string // the same of the standard library, by their paths on this machine
}

// write fills the folder with an overlay for the packages of the module at root.
func write(folder, root string, packages []string, v variant) ([]report, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	o := overlay{folder: folder, root: root, variant: v, Replace: map[string]string{}}
	listed, exports, err := list(root, packages)
	if err != nil {
		return nil, err
	}
	for name, text := range v.changed { // also of packages without points
		if err := o.add(filepath.Join(root, filepath.FromSlash(name)), []byte(text)); err != nil {
			return nil, err
		}
	}
	for path, text := range v.library {
		name := filepath.Join("library", filepath.Base(filepath.Dir(path)), filepath.Base(path))
		if err := o.replace(path, name, []byte(text)); err != nil {
			return nil, err
		}
	}
	reports := make([]report, 0, len(listed))
	for _, p := range listed {
		r, err := o.addPackage(p, exports)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		reports = append(reports, r)
	}
	text, err := json.MarshalIndent(o, "", "\t")
	if err != nil {
		return nil, err
	}
	return reports, os.WriteFile(filepath.Join(folder, "overlay.json"), text, 0o644)
}

// overlay is what `go help build` describes under -overlay.
type overlay struct {
	Replace      map[string]string
	folder, root string
	variant      variant
}

// add has the text stand for the file at path, which is below the root.
func (o *overlay) add(path string, text []byte) error {
	name, err := filepath.Rel(o.root, path)
	if err != nil {
		return err
	}
	return o.replace(path, name, text)
}

// replace has the text stand for the file at path, under that name in the folder.
func (o *overlay) replace(path, name string, text []byte) error {
	copied := filepath.Join(o.folder, name)
	if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
		return err
	}
	o.Replace[path] = copied
	return os.WriteFile(copied, text, 0o644)
}

func (o *overlay) addPackage(p listedPackage, exports map[string]string) (report, error) {
	r := report{folder: filepath.ToSlash(strings.TrimPrefix(p.Dir, o.root+"/")), operations: map[kind]int{}}
	positions := token.NewFileSet()
	texts, err := o.texts(p)
	if err != nil {
		return r, err
	}
	paths := slices.Sorted(maps.Keys(texts))
	files := make([]*ast.File, len(paths))
	for i, path := range paths {
		if files[i], err = parser.ParseFile(positions, path, texts[path], 0); err != nil {
			return r, err
		}
	}
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	config := types.Config{Importer: importer.ForCompiler(positions, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
	if _, err := config.Check(p.ImportPath, positions, files, info); err != nil {
		return r, err
	}
	for i, path := range paths {
		f := file{positions: positions, info: info, module: p.Module.Path, explore: o.variant.explore, report: &r}
		text, err := f.withPoints(files[i], texts[path])
		if err != nil {
			return r, err
		}
		if err := o.add(path, text); err != nil {
			return r, err
		}
	}
	return r, nil
}

// texts returns the texts of a package's files by path.
func (o *overlay) texts(p listedPackage) (map[string][]byte, error) {
	texts := map[string][]byte{}
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		texts[path] = text
	}
	for name, text := range o.variant.changed {
		if path := filepath.Join(o.root, filepath.FromSlash(name)); filepath.Dir(path) == p.Dir {
			texts[path] = []byte(text)
		}
	}
	return texts, nil
}

type listedPackage struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	Module                  *struct{ Path string }
}

// list returns the packages in the folders below root, and by import path the files with the types of all packages that
// they import.
func list(root string, folders []string) (wanted []listedPackage, exports map[string]string, err error) {
	var refused bytes.Buffer
	args := []string{"list", "-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,Module", "--"}
	for _, folder := range folders {
		args = append(args, "./"+folder)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = root, &refused
	output, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list: %w\n%s", err, &refused)
	}
	byFolder := map[string]listedPackage{}
	exports = map[string]string{}
	decoder := json.NewDecoder(bytes.NewReader(output))
	for {
		var p listedPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		byFolder[p.Dir], exports[p.ImportPath] = p, p.Export
	}
	for _, folder := range folders {
		p, ok := byFolder[filepath.Join(root, folder)]
		if !ok {
			return nil, nil, fmt.Errorf("%s is no package of the module", folder)
		}
		wanted = append(wanted, p)
	}
	return wanted, exports, nil
}
