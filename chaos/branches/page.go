package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const head = `# Branches of the scripts

Each branch of each Lua script, and each reply code, with a test that reaches it on a redis-server. A branch is the body
of an if, an elseif, an else, a loop or a function; "not" is the other case of an if without an else. Conditions are not
taken apart: a part of a condition that decides alone has no row of its own. The command that writes this page stands
in [correctness.md](correctness.md#branches-of-the-scripts). It names the branches that no test reaches, here "no test".

"corpus" is a sequence of calls, a file of internal/test/scriptfuzz/testdata/corpus; "seed" is a sequence that
TestRandomSequences of internal/test/scriptfuzz draws; the others are tests of package scripts.
`

// page returns the text of the page.
func page(all []branch, r reached) string {
	var b strings.Builder
	b.WriteString(head)
	file := ""
	for i, br := range all {
		if br.file != file {
			file = br.file
			fmt.Fprintf(&b, "\n## %s\n\n| branch | reached by |\n|---|---|\n", file)
		}
		b.WriteString(row(br, r.branches[i]))
	}
	b.WriteString("\n## Reply codes\n\nAs the headers of the scripts list them; of refresh and renew for each hold.\n\n" +
		"| script | code | reached by |\n|---|---|---|\n")
	slices.Sort(r.order)
	for _, code := range r.order {
		script, value, _ := strings.Cut(code, ": ")
		fmt.Fprintf(&b, "| %s | %s | %s |\n", script, value, r.codes[code])
	}
	return b.String()
}

// noTest stands in the row of a branch that no test reaches.
const noTest = "no test"

func row(br branch, test string) string { return rowBegin(br) + cmp.Or(test, noTest) + " |\n" }

// rowBegin is a row up to its test.
func rowBegin(br branch) string { return "| `" + strings.ReplaceAll(br.what, "|", `\|`) + "` | " }
