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

// Each block of Go on a page is a whole file with its imports and types, so it compiles as it is pasted. All blocks are
// files of one package, which the workspace has in memory only, and testdata/pages_test.go runs them.
func TestCodeOfThePagesRuns(t *testing.T) {
	top, err := filepath.Abs(root)
	require.NoError(t, err)
	tests, err := filepath.Abs(filepath.Join("testdata", "pages_test.go"))
	require.NoError(t, err)
	folder, in := t.TempDir(), filepath.Join(top, "examples", "recipes", "page")
	replaced := map[string]string{filepath.Join(in, "pages_test.go"): tests}
	for path, page := range documents(t) {
		for _, at := range code.FindAllStringSubmatchIndex(page, -1) {
			block := page[at[2]:at[3]]
			formatted, err := format.Source([]byte("package page\n\n" + block))
			require.NoError(t, err, "%s: %s", path, block)
			require.Equal(t, "package page\n\n"+block, string(formatted), path)
			file := fmt.Sprintf("block%d_test.go", len(replaced))
			line := strings.Count(page[:at[2]], "\n") + 1
			text := fmt.Sprintf("package page\n\n//line %s:%d\n%s", filepath.Base(path), line, block)
			require.NoError(t, os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600))
			replaced[filepath.Join(in, file)] = filepath.Join(folder, file)
		}
	}
	require.Greater(t, len(replaced), 30)
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	overlay := filepath.Join(folder, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, text, 0o600))
	program := filepath.Join(folder, "run") // its package has no folder on the disk to run in
	shell(t, root, "go test -vet=off -c -o "+program+" -overlay "+overlay+" ./examples/recipes/page")
	require.Contains(t, shell(t, folder, program+" -test.v"), "\n--- PASS: TestReadme ")
}
