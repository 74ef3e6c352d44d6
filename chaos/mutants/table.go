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

// table is one of the tables of the page.
type table int

const (
	byTests table = iota
	byMachines
	byChaos
)

// heads begin the tables.
var heads = [...]string{
	byTests: `# Mutants

Each row is a deliberate bug, and the test that notices it. The bugs are in ` + "`" + folder + "`" + `, one file each.
The commands that write this page stand in [CONTRIBUTING.md](../CONTRIBUTING.md#mutants): they put one bug at a time
into the sources, and the test, which passes without the bug, has to fail. A time is that of the run until the test
failed, without the compilation, on a machine of two busy cores.

| mutant | breaks | killed by | after |
|---|---|---|---|
`,
	byMachines: `
## Found without a test that knows the bug

These bugs were in the code once, and no test had found them. A machine finds each now: the search for a schedule,
random sequences of scripts, a simulation of the quorum, or chaos. None of them is told the steps that lead to the bug;
the scenarios in which the search looks for schedules were written when these bugs were known. A time of the search
includes that for building the scenarios.

| mutant | found by | after | what |
|---|---|---|---|
`,
	byChaos: `
## Found by chaos

Mutants that were drawn from a seed, and the run of chaos that broke a promise first. The same run passes without the
bug. The time is that of all runs since the mutant was put in, on two processors. "none" is a mutant that these runs did
not find: it may need more time, or chaos lacks what shows it. The rows of the seeds 1, 2 and 19 are of real servers
alone, before chaos had embedded ones, on a machine with twenty to sixty other processes to run.

| mutant | broken promise | after | the run, or the first one |
|---|---|---|---|
`,
}

// update writes the row of a killed mutant to a table of the page. The page keeps its other rows of mutants that exist.
func update(path string, all []mutant, in table, killed row) error {
	page, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var rows [len(heads)]map[string]string
	for t, head := range heads {
		title, _, _ := strings.Cut(strings.TrimLeft(head, "\n"), "\n")
		_, part, _ := strings.Cut("\n"+string(page), "\n"+title+"\n")
		part, _, _ = strings.Cut(part, "\n## ")
		rows[t] = map[string]string{}
		for line := range strings.Lines(part) {
			if name, _, is := strings.Cut(strings.TrimPrefix(line, "| "), " | "); is {
				rows[t][name] = line
			}
		}
	}
	rows[in][killed.name] = killed.line(in)
	var b strings.Builder
	for t, head := range heads {
		var lines strings.Builder
		for _, m := range all {
			lines.WriteString(rows[t][m.name])
		}
		if lines.Len() > 0 {
			b.WriteString(head + lines.String())
		}
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func (r row) line(in table) string {
	after := fmt.Sprintf("%.1f s", r.after.Seconds())
	killer := escape(r.result.killer)
	switch in {
	case byMachines:
		return fmt.Sprintf("| %s | %s | %s | %s |\n", r.name, escape(r.command.short()), after, killer)
	case byChaos:
		return fmt.Sprintf("| %s | %s | %s | %s |\n", r.name, killer, after, escape(r.command.short()))
	}
	where := "`" + r.mutant.killer.folder + "`"
	if !r.mutant.killer.tests() {
		where = r.mutant.killer.short()
	}
	return fmt.Sprintf("| %s | %s | %s in %s | %s |\n", r.name, escape(r.breaks), killer, where, after)
}

func escape(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
