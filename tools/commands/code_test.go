package commands_test

import (
	"encoding/json"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var code = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// Each block of Go on a page is a whole file with its imports and types, so it compiles as it is pasted. Each is a
// package of its own, which the workspace has in memory only.
func TestCodeOfThePagesCompiles(t *testing.T) {
	top, err := filepath.Abs(root)
	require.NoError(t, err)
	folder := t.TempDir()
	overlay := filepath.Join(folder, "overlay.json")
	replaced, packages := map[string]string{}, ""
	for path, page := range documents(t) {
		for _, at := range code.FindAllStringSubmatchIndex(page, -1) {
			block, name := page[at[2]:at[3]], fmt.Sprintf("page%d", len(replaced))
			formatted, err := format.Source([]byte("package page\n\n" + block))
			require.NoError(t, err, "%s: %s", path, block)
			require.Equal(t, "package page\n\n"+block, string(formatted), path)
			file := filepath.Join(folder, name+".go")
			line := strings.Count(page[:at[2]], "\n") + 1
			text := fmt.Sprintf("package page\n\n//line %s:%d\n%s", filepath.Base(path), line, block)
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			replaced[filepath.Join(top, "examples", "recipes", name, "page.go")] = file
			packages += " ./examples/recipes/" + name
		}
	}
	require.Greater(t, len(replaced), 25)
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, text, 0o600))
	shell(t, root, "go build -overlay "+overlay+packages)
}
