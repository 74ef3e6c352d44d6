package fencing_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// codeLink is how a page names the example, the test or the recipe that runs its code.
var codeLink = regexp.MustCompile(`\[(\w+)\]\((\.\./[^)]*\.go)\)`)

// Each example that a page names exists. That the code of the page itself compiles is tested in tools/commands.
func TestExamplesOfThePagesExist(t *testing.T) {
	// A downloaded module is without the nested ones, whose examples are on the pages.
	if _, err := os.Stat("../go.work"); os.IsNotExist(err) {
		_, err := os.Stat("../.git")
		require.Error(t, err, "a clone has the nested modules")
		t.Skip("no ../go.work: run it in a clone of the repository")
	}
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	links := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, link := range codeLink.FindAllStringSubmatch(string(text), -1) {
			file, err := os.ReadFile(filepath.Join(filepath.Dir(page), link[2]))
			require.NoError(t, err)
			require.Regexp(t, `func (\([^)]*\) )?`+link[1]+`[(\[]`, string(file), link[0])
			links++
		}
	}
	require.Greater(t, links, 30)
}
