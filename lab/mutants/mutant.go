package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// folder has the mutants, below the root of the repository.
const folder = "lab/mutants/bugs"

// mutant is one deliberate bug.
type mutant struct {
	name   string
	breaks string // one line
	killer command
	finder command // a machine that does not know the bug; without text for most
	unseen string  // why no run of chaos can notice the bug, or ""
	edits  []edit
}

// edit replaces a text that occurs once in a file.
type edit struct {
	path     string // below the root
	old, new string
}

// load reads all mutants, by name.
func load(root string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.mutant"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	all := make([]mutant, 0, len(paths))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(filepath.Base(path), ".mutant")
		m, err := parse(name, string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, m)
	}
	return all, nil
}

func parse(name, text string) (mutant, error) {
	m := mutant{name: name}
	header, body, _ := strings.Cut(text, "\n\n")
	for line := range strings.Lines(header) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		var err error
		switch key {
		case "breaks":
			m.breaks = value
		case "killed by":
			m.killer, err = parseCommand(value)
		case "found by":
			m.finder, err = parseCommand(value)
		case "unseen by chaos":
			m.unseen = value
		default:
			err = fmt.Errorf("no header is called %q", key)
		}
		if err != nil {
			return m, err
		}
	}
	m.edits = parseEdits(body)
	switch {
	case m.breaks == "" || m.killer.text == "":
		return m, errors.New("the header lacks a line")
	case len(m.edits) == 0:
		return m, errors.New("nothing is replaced")
	case slices.ContainsFunc(m.edits, func(e edit) bool { return e.path == "" || e.old == "" }):
		return m, errors.New("a replacement lacks its file or its old text")
	}
	return m, nil
}

// parseEdits reads replacements. A line of old text after one of new text begins the next replacement.
func parseEdits(body string) (edits []edit) {
	var path string
	var old, changed []string
	flush := func() {
		if old != nil {
			edits = append(edits, edit{path, strings.Join(old, "\n"), strings.Join(changed, "\n")})
		}
		old, changed = nil, nil
	}
	for line := range strings.SplitSeq(strings.TrimRight(body, "\n"), "\n") {
		switch sign, rest, _ := strings.Cut(line, " "); sign {
		case "-":
			if changed != nil {
				flush()
			}
			old = append(old, rest)
		case "+":
			changed = append(changed, rest)
		case "":
			flush()
		default:
			flush()
			path = line
		}
	}
	flush()
	return edits
}

// apply returns the files that the bug changes, with their new contents, by path.
func (m mutant) apply(root string) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.edits {
		text, known := files[e.path]
		if !known {
			content, err := os.ReadFile(filepath.Join(root, e.path))
			if err != nil {
				return nil, err
			}
			text = string(content)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("%s has this text %d times, not once:\n%s", e.path, n, e.old)
		}
		files[e.path] = strings.Replace(text, e.old, e.new, 1)
	}
	return files, nil
}
