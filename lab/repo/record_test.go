package repo_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
)

// record is what docs/evidence.md may name.
type record struct {
	tests    map[string]bool // "TestX in folder"
	cases    map[string]bool // of the model
	mutants  map[string]bool
	promises string // the text of docs/guarantees.md and docs/guide.md
}

var (
	testName  = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
	testPlace = regexp.MustCompile("((?:" + testName.String() + "(?:,\\s+)?)+)\\s+in\\s+`([\\w/]+)`")
	oneOrMore = "((?:`[a-z0-9-]+`(?:,\\s+)?)+)"
	casesOf   = regexp.MustCompile(`\bcases?\s+` + oneOrMore)
	mutantsOf = regexp.MustCompile(`\bmutants?\s+` + oneOrMore)
	goTest    = regexp.MustCompile("`(?:go|./run.sh) [^`]*`|(?m)^go test .*$")
	promised  = regexp.MustCompile(`(?m)^- "([^"]+)"`)
	listed    = regexp.MustCompile(`[a-z0-9-]{2,}`)
)

// wrongIn returns what a page names and the repository lacks.
func (r record) wrongIn(page string) (wrong []string) {
	missing := func(what string, known map[string]bool, names ...string) {
		for _, name := range names {
			if !known[name] {
				wrong = append(wrong, what+" "+name)
			}
		}
	}
	page = goTest.ReplaceAllString(page, "")
	placed := map[string]bool{}
	for _, match := range testPlace.FindAllStringSubmatch(page, -1) {
		for _, name := range testName.FindAllString(match[1], -1) {
			placed[name] = true
			missing("test", r.tests, name+" in "+match[2])
		}
	}
	missing("the folder of", placed, testName.FindAllString(page, -1)...)
	for _, match := range casesOf.FindAllStringSubmatch(page, -1) {
		missing("case", r.cases, listed.FindAllString(match[1], -1)...)
	}
	for _, match := range mutantsOf.FindAllStringSubmatch(page, -1) {
		missing("mutant", r.mutants, listed.FindAllString(match[1], -1)...)
	}
	for _, match := range promised.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(r.promises, strings.Join(strings.Fields(match[1]), " ")) {
			wrong = append(wrong, "promise "+match[1])
		}
	}
	return wrong
}

var functionOfTest = regexp.MustCompile(`(?m)^func (` + testName.String() + `)\(`)

func recordOfRepository(t *testing.T) record {
	r := record{tests: map[string]bool{}, cases: map[string]bool{}, mutants: map[string]bool{}}
	for path, text := range files(t, "_test.go") {
		for _, match := range functionOfTest.FindAllSubmatch(text, -1) {
			r.tests[string(match[1])+" in "+filepath.ToSlash(filepath.Dir(path))] = true
		}
	}
	table := expect.NoError(os.ReadFile("redlock/model/cases.txt")).In(t)
	for line := range strings.Lines(string(table)) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			r.cases[strings.TrimSpace(cells[1])] = true
		}
	}
	for path := range files(t, ".mutant") {
		r.mutants[strings.TrimSuffix(filepath.Base(path), ".mutant")] = true
	}
	for _, page := range []string{"docs/guarantees.md", "docs/guide.md"} {
		promises := expect.NoError(os.ReadFile(page)).In(t)
		r.promises += strings.Join(strings.Fields(string(promises)), " ")
	}
	return r
}

func TestTheRecordNamesWhatThereIs(t *testing.T) {
	page := expect.NoError(os.ReadFile("docs/evidence.md")).In(t)
	r := recordOfRepository(t)
	require.Empty(t, r.wrongIn(strings.ReplaceAll(string(page), "TestX", "a test")))
	require.Greater(t, len(promised.FindAllString(string(page), -1)), 25)
}

// A clone without its history knows no commits.
func TestTheRecordNamesCommits(t *testing.T) {
	shallow, err := exec.Command("git", "rev-parse", "--is-shallow-repository").Output()
	if err != nil || strings.TrimSpace(string(shallow)) != "false" {
		t.Skipf("git has no history of this folder: %s %v", shallow, err)
	}
	page := expect.NoError(os.ReadFile("docs/evidence.md")).In(t)
	named := regexp.MustCompile(`\| ([0-9a-f]{7}) \|`).FindAllSubmatch(page, -1)
	require.Greater(t, len(named), 15)
	require.LessOrEqual(t, len(named), 20)
	for _, commit := range named {
		err := exec.Command("git", "merge-base", "--is-ancestor", string(commit[1]), "HEAD").Run()
		require.NoError(t, err, "%s is in no history of this commit", commit[1])
	}
}

func TestTheRecordNoticesWhatIsMissing(t *testing.T) {
	known := func(names ...string) map[string]bool {
		all := map[string]bool{}
		for _, name := range names {
			all[name] = true
		}
		return all
	}
	r := record{
		tests: known("TestAa in p", "TestBb in p"), cases: known("one"), mutants: known("bug"), promises: "It holds. Always.",
	}
	for text, wrong := range map[string][]string{
		"TestAa, TestBb in `p`; case `one`; mutant `bug`": nil,
		"TestAa in `q`":          {"test TestAa in q"},
		"TestAa, TestCc in `p`":  {"test TestCc in p"},
		"TestAa":                 {"the folder of TestAa"},
		"cases `one`, `two`":     {"case two"},
		"mutants `bug`, `other`": {"mutant other"},
		"- \"It\n  holds.\"":     nil,
		"- \"It holds\"":         nil,
		"- \"It breaks.\"":       {"promise It breaks."},
	} {
		found := r.wrongIn(text)
		slices.Sort(found)
		require.Equal(t, wrong, found, text)
	}
}
