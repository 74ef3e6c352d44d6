package scripts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

func luaFiles(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	all := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		all[path] = string(text)
	}
	return all
}

func TestEveryScriptBeginsWithItsContract(t *testing.T) {
	for path, text := range luaFiles(t) {
		var header []string
		for line := range strings.SplitSeq(text, "\n") {
			if !strings.HasPrefix(line, "--") {
				break
			}
			header = append(header, line)
		}
		require.True(t, strings.HasPrefix(header[0], "-- "+path+": "), "%s: first line %q", path, header[0])
		for _, part := range []string{"KEYS", "ARGV", "Reply", "Twice", "Cost"} {
			found := 0
			for _, line := range header {
				if rest, ok := strings.CutPrefix(line, "-- "+part); ok && strings.TrimSpace(rest) != "" {
					found++
				}
			}
			require.Equal(t, 1, found, "%s: %s", path, part)
		}
	}
}

// The files that are no scripts of their own stand in the place of the lines that name them, and nowhere else.
func TestSourcesAreAssembled(t *testing.T) {
	files := luaFiles(t)
	included := map[string]bool{}
	include := regexp.MustCompile(`(?m)^-- include: (.*)\n`)
	for name, source := range scripts.All() {
		require.Equal(t, source, scripts.Source(name))
		want := include.ReplaceAllStringFunc(files[string(name)+".lua"], func(line string) string {
			part := include.FindStringSubmatch(line)[1]
			require.Contains(t, files, part, name)
			included[part] = true
			return files[part]
		})
		require.NotEmpty(t, source, name)
		require.Equal(t, want, source, name)
		require.NotContains(t, source, "include:", name)
	}
	for path := range files {
		name := scripts.Name(strings.TrimSuffix(path, ".lua"))
		require.Equal(t, included[path], scripts.Source(name) == "", "%s is either a script or included", path)
	}
	for _, none := range []scripts.Name{"", "vote", "lock", "settle", "no such", "../embed.go", "acquire.lua"} {
		require.Empty(t, scripts.Source(none))
	}
	for range scripts.All() {
		break // an iterator may be left early
	}
}
