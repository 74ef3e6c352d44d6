package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// row is the result of a killed mutant.
type row struct {
	mutant
	result
}

const head = `# Mutants

Each row is a deliberate bug, and the test that notices it. The bugs are in ` + "`" + folder + "`" + `, one file each.
The command that writes this page stands in [CONTRIBUTING.md](../CONTRIBUTING.md#mutants): it puts one bug at a time
into the sources, and the test, which passes without the bug, has to fail. A time is that of the run until the test
failed, without the compilation, on a machine of two busy cores.

| mutant | breaks | killed by | after |
|---|---|---|---|
`

// update writes the row of a killed mutant to a page. The page keeps its rows of other mutants that exist.
func update(path string, all []mutant, killed row) error {
	page, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if name, _, is := strings.Cut(strings.TrimPrefix(line, "| "), " | "); is {
			lines[name] = line
		}
	}
	lines[killed.name] = killed.line()
	var b strings.Builder
	b.WriteString(head)
	for _, m := range all {
		b.WriteString(lines[m.name])
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func (r row) line() string {
	where := "chaos `" + strings.Join(r.mutant.killer.args, " ") + "`"
	if r.mutant.killer.tests() {
		where = "`" + r.mutant.killer.folder + "`"
	}
	return fmt.Sprintf("| %s | %s | %s in %s | %.1f s |\n",
		r.name, escape(r.breaks), escape(r.result.killer), where, r.after.Seconds())
}

func escape(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
