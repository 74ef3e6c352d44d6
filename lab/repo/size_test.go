package repo_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
)

// What a reader has to take in at once is bounded, tests included, in every module of the workspace.
const (
	maxLines     = 600 // of a file
	maxWidth     = 120 // characters of a line
	maxBody      = 70  // lines of a function, without those of its tables
	tableEntries = 3   // a composite literal with so many entries that are literals themselves is a table
)

func TestFilesAreShort(t *testing.T) {
	for path, text := range files(t, ".go") {
		require.LessOrEqual(t, lines(text), maxLines, path)
	}
}

func TestLinesAreNarrow(t *testing.T) {
	var wide []string
	for _, suffix := range []string{".go", ".lua"} {
		for path, text := range files(t, suffix) {
			for _, line := range wideLines(text) {
				wide = append(wide, path+": "+line)
			}
		}
	}
	require.Empty(t, wide)
}

func TestFunctionsAreShort(t *testing.T) {
	var long []string
	for path, text := range files(t, ".go") {
		for _, function := range longFunctions(t, text) {
			long = append(long, path+": "+function)
		}
	}
	require.Empty(t, long)
}

func TestSizeRulesNoticeWhatBreaksThem(t *testing.T) {
	require.Equal(t, 3, lines([]byte("a\nb\nc")))
	require.Equal(t, 3, lines([]byte("a\nb\nc\n")))

	wide := strings.Repeat("ä", maxWidth)
	require.Empty(t, wideLines([]byte(wide+"\n")))
	require.Equal(t, []string{"line 2: 121 characters"}, wideLines([]byte("a\n"+wide+"b\n")))

	body := strings.Repeat("\tx()\n", maxBody-2)
	require.Empty(t, longFunctions(t, []byte("package p\nfunc f() {\n"+body+"}\n")))
	require.Equal(t, []string{"f: 71 lines"}, longFunctions(t, []byte("package p\nfunc f() {\n"+body+"\tx()\n}\n")))
	table := "\tfor range []s{\n\t\t{1},\n\t\t{2},\n\t\t{3},\n\t} {\n\t}\n"
	require.Empty(t, longFunctions(t, []byte("package p\nfunc f() {\n"+body[:len(body)-4*5]+table+"}\n")))
}

func lines(text []byte) int {
	n := bytes.Count(text, []byte("\n"))
	if len(text) > 0 && text[len(text)-1] != '\n' {
		n++
	}
	return n
}

func wideLines(text []byte) (wide []string) {
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if width := utf8.RuneCountInString(strings.TrimRight(line, "\n")); width > maxWidth {
			wide = append(wide, fmt.Sprintf("line %d: %d characters", n, width))
		}
	}
	return wide
}

// longFunctions returns the functions of a file that are too long. A table is data, which is read another way.
func longFunctions(t *testing.T, text []byte) (long []string) {
	t.Helper()
	positions := token.NewFileSet()
	file := expect.NoError(parser.ParseFile(positions, "", text, parser.SkipObjectResolution)).In(t)
	span := func(n ast.Node) int { return positions.Position(n.End()).Line - positions.Position(n.Pos()).Line }
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		n := span(f) + 1
		ast.Inspect(f, func(node ast.Node) bool {
			literal, ok := node.(*ast.CompositeLit)
			if !ok || !isTable(literal) {
				return true
			}
			n -= span(literal)
			return false
		})
		if n > maxBody {
			long = append(long, fmt.Sprintf("%s: %d lines", f.Name.Name, n))
		}
	}
	return long
}

// isTable reports whether the literal lists rows, in a slice or by name.
func isTable(literal *ast.CompositeLit) bool {
	rows := 0
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			element = pair.Value
		}
		if _, ok := element.(*ast.CompositeLit); ok {
			rows++
		}
	}
	return rows >= tableEntries
}
