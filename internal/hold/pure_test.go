package hold_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
)

// The package is pure: it has nothing of a clock, a network, goroutines, mutexes or names.
func TestPure(t *testing.T) {
	const module = "github.com/seed74116694/fencelock/"
	allowed := append(strings.Fields("cmp errors fmt math slices sync/atomic time"),
		module+"fencing", module+"internal/ballot", module+"internal/clock")
	for _, path := range expect.NoError(filepath.Glob("*.go")).In(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file := expect.NoError(parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)).In(t)
		for _, imported := range file.Imports {
			require.Contains(t, allowed, expect.NoError(strconv.Unquote(imported.Path.Value)).In(t), path)
		}
	}
}
