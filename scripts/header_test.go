package scripts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

func TestEveryScriptBeginsWithItsContract(t *testing.T) {
	paths, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var header []string
		for line := range strings.SplitSeq(string(text), "\n") {
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

func TestAllYieldsEveryFile(t *testing.T) {
	paths, err := filepath.Glob("*.lua")
	require.NoError(t, err)
	prelude, err := os.ReadFile("prelude.lua")
	require.NoError(t, err)
	sources := map[string]string{}
	for name, source := range scripts.All() {
		require.Equal(t, source, scripts.Source(name))
		sources[string(name)+".lua"] = source
	}
	for _, path := range paths {
		if path == "prelude.lua" {
			continue
		}
		body, err := os.ReadFile(path)
		require.NoError(t, err)
		source := sources[path]
		require.True(t, strings.HasSuffix(source, string(body)), path)
		if strings.Contains(string(body), "Runs without the") {
			require.Equal(t, string(body), source, path)
		} else {
			require.True(t, strings.HasPrefix(source, string(prelude)), path)
		}
	}
	require.Len(t, sources, len(paths)-1)
	for _, none := range []scripts.Name{"", "prelude", "no such", "../embed.go", "acquire.lua"} {
		require.Empty(t, scripts.Source(none))
	}
	for range scripts.All() {
		break // an iterator may be left early
	}
}
