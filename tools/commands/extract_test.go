package commands_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

var (
	programs = regexp.MustCompile(`^(?:GOWORK=off )?(?:go|bash|sh|cd|redis-cli|golangci-lint) .`)
	span     = regexp.MustCompile("`([^`\n]+)`")
	comment  = regexp.MustCompile(`\s+# .*$`)
)

// commandsOf returns the commands that a page shows, in blocks of code and in spans within its text.
func commandsOf(page string) (found []string) {
	fenced := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
			continue
		}
		if fenced || strings.HasPrefix(line, "    ") {
			if command := comment.ReplaceAllString(trimmed, ""); programs.MatchString(command) {
				found = append(found, command)
			}
			continue
		}
		for _, match := range span.FindAllStringSubmatch(line, -1) {
			if programs.MatchString(match[1]) && match[1] != "go test" {
				found = append(found, match[1])
			}
		}
	}
	return found
}

// documents returns the text of every page by its path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	top, err := filepath.Glob(filepath.Join(root, "*.md"))
	require.NoError(t, err)
	pages := map[string]string{}
	for _, path := range slices.Concat(paths, top) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		pages[path] = string(text)
	}
	return pages
}

func TestCommandsAreFound(t *testing.T) {
	const page = "Run `go run ./bench`, and no `go test`:\n\n" +
		"    go test ./a -run 'B|C' # why\n    no command\n\n```sh\ncd x\n```\n" +
		"| `go test ./c -v` | `DEL x` |\n"
	require.Equal(t, []string{"go run ./bench", "go test ./a -run 'B|C'", "cd x", "go test ./c -v"}, commandsOf(page))
}
