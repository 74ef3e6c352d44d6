// Package flows_test counts by machine which functions a lock goes through. See flows.txt.
package flows_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../../.."

// The numbers are those of flows.txt. The output of -v names each function with its calls.
func TestFlows(t *testing.T) {
	folder := t.TempDir()
	overlay := map[string]string{}
	for _, path := range sources(t) {
		text, entered := instrumented(t, path)
		if entered {
			copied := filepath.Join(folder, fmt.Sprintf("%d.go", len(overlay)))
			require.NoError(t, os.WriteFile(copied, []byte(text), 0o644))
			overlay[path] = copied
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "overlay.json"), list, 0o644))

	found := filepath.Join(folder, "flows")
	cmd := exec.Command("go", "test", "-overlay", filepath.Join(folder, "overlay.json"), "-count=1", "-v", ".")
	cmd.Dir, cmd.Env = "testdata/traced", append(os.Environ(), "FENCELOCK_FLOWS="+found)
	output, err := cmd.CombinedOutput()
	t.Logf("%s", output)
	require.NoError(t, err)
	is, err := os.ReadFile(found)
	require.NoError(t, err)
	require.Equal(t, recorded(t), strings.Fields(string(is)), "a number may only fall, and flows.txt follows it:\n%s", is)
}

// recorded returns the words of flows.txt without its comments.
func recorded(t *testing.T) (words []string) {
	text, err := os.ReadFile("flows.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		words = append(words, strings.Fields(line)...)
	}
	return words
}

// sources returns the files of rwlock and of what it needs of this module.
func sources(t *testing.T) (paths []string) {
	const files = `{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}} {{end}}{{end}}{{end}}`
	cmd := exec.Command("go", "list", "-deps", "-f", files, "./rwlock")
	cmd.Dir = root
	listed, err := cmd.Output()
	require.NoError(t, err)
	return strings.Fields(string(listed))
}

// instrumented returns the text of a file whose functions call Enter, and whether it has any.
func instrumented(t *testing.T, path string) (text string, entered bool) {
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	positions := token.NewFileSet()
	parsed, err := parser.ParseFile(positions, path, source, parser.SkipObjectResolution)
	require.NoError(t, err)
	absolute, err := filepath.Abs(root)
	require.NoError(t, err)
	name, err := filepath.Rel(absolute, path)
	require.NoError(t, err)
	text = string(source)
	for _, d := range slices.Backward(parsed.Decls) {
		f, is := d.(*ast.FuncDecl)
		if !is || f.Body == nil {
			continue
		}
		function := f.Name.Name
		if f.Recv != nil {
			function = receiver(f.Recv.List[0].Type) + "." + function
		}
		at := positions.Position(f.Body.Lbrace).Offset + 1
		text = text[:at] + fmt.Sprintf(" trace.Enter(%q);", name+" "+function) + text[at:]
		entered = true
	}
	at := positions.Position(parsed.Name.End()).Offset
	return text[:at] + `; import "github.com/seed74116694/fencelock/lab/tools/flows/trace"` + text[at:], entered
}

// receiver returns the name of a method's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	default:
		return of.(*ast.Ident).Name
	}
}
