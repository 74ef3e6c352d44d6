package fencing_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// codeLinks are how a page names the example, the test or the recipe that its code is from.
var codeLinks = []*regexp.Regexp{
	regexp.MustCompile(`\[((?:Example|Test)\w*)\]\((\.\./[^)]*_test\.go)\)`),
	regexp.MustCompile(`^Recipe: \[(\w+)\]\((\.\./[^)]*\.go)\)`),
}

// What the pages show must be what go test runs: each example that they name must
// exist, and each of their Go blocks must be part of the file named last above it.
func TestRecipesAreTakenFromExamples(t *testing.T) {
	// A downloaded module is without the nested ones, whose examples are on the pages.
	if _, err := os.Stat("../go.work"); os.IsNotExist(err) {
		_, err := os.Stat("../.git")
		require.Error(t, err, "a clone has the nested modules")
		t.Skip("no ../go.work: run it in a clone of the repository")
	}
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	blocks := 0
	for _, page := range pages {
		blocks += blocksOf(t, page)
	}
	require.GreaterOrEqual(t, blocks, 49)
}

// blocksOf checks the Go blocks of a page and returns their number.
func blocksOf(t *testing.T, page string) (blocks int) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var source string
	inBlock, block := false, []string(nil)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		var links [][]string
		for _, kind := range codeLinks {
			links = append(links, kind.FindAllStringSubmatch(line, -1)...)
		}
		for _, link := range links {
			path := filepath.Join(filepath.Dir(page), link[2])
			file, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Regexp(t, `func (\([^)]*\) )?`+link[1]+`[(\[]`, string(file), path)
			source = withoutIndentation(string(file))
		}
		switch {
		case line == "```go":
			inBlock, block = true, nil
		case line == "```" && inBlock:
			inBlock = false
			blocks++
			shown := withoutIndentation(strings.Join(block, "\n"))
			require.NotEmpty(t, shown)
			require.Contains(t, source, shown, "a block is not in the example that is named above it")
		case inBlock:
			block = append(block, line)
		}
	}
	return blocks
}

// withoutIndentation lets a page show a part of a function without its tabs.
func withoutIndentation(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.Trim(text, "\n")) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}
