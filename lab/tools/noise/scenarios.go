package main

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// explored are the packages that have points in the scenarios.
var explored = []string{"internal/localqueue", "internal/engine", "internal/ctxend", "rwlock"}

// exported gives the scenarios what the packages do not export. Scenarios that need it have the build tag explore, and
// those of whole lockers the tag lockers too.
//
//go:embed testdata/exported
var exported embed.FS

// exploration is a run of scenarios, in every schedule within their bounds.
type exploration struct {
	root     string
	packages []string          // that have points
	changed  map[string]string // by their paths below the root, texts that stand for those of the sources
	pattern  string            // of the scenarios' names
	exact    bool              // the runtime leaves nothing to chance: see exactRuntime
	args     []string          // further ones of the test program
}

// run builds the scenarios with an overlay in the folder, and runs them.
func (e exploration) run(folder string, out io.Writer) error {
	v := variant{explore: true, changed: maps.Clone(e.changed)}
	if v.changed == nil {
		v.changed = map[string]string{}
	}
	for _, p := range e.packages {
		text, err := exported.ReadFile("testdata/exported/" + path.Base(p) + ".txt")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		v.changed[p+"/explore.go"] = string(text)
	}
	tags := "explore"
	if e.exact {
		tags += ",exact"
		var err error
		if v.library, err = exactRuntime(); err != nil {
			return err
		}
	}
	if _, err := write(folder, e.root, e.packages, v); err != nil {
		return err
	}
	if slices.Contains(e.packages, "rwlock") {
		tags += ",lockers"
	}
	args := append([]string{
		"test", "-overlay", filepath.Join(folder, "overlay.json"), "-tags", tags, "-count=1", "-v", "-timeout=2h",
		"-run", e.pattern, "./testdata/scenarios",
	}, e.args...)
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(e.root, "lab", "tools", "noise"), out, out
	return cmd.Run()
}

// readOverlay returns the files that an overlay of the go command replaces, by their paths below the root.
func readOverlay(path, root string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	root, err = filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	var o overlay
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	files := map[string]string{}
	for replaced, by := range o.Replace {
		name, err := filepath.Rel(root, replaced)
		if err != nil || strings.HasPrefix(name, "..") {
			return nil, fmt.Errorf("%s is not below %s", replaced, root)
		}
		content, err := os.ReadFile(by)
		if err != nil {
			return nil, err
		}
		files[filepath.ToSlash(name)] = string(content)
	}
	return files, nil
}
