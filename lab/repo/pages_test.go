package repo_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
)

// A program that was built in its folder is easily committed with it.
func TestNoBinaryIsCommitted(t *testing.T) {
	listed, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("git does not list the files, as outside a clone, or in another user's: %v", err)
	}
	paths := strings.Split(strings.TrimSuffix(string(listed), "\x00"), "\x00")
	require.Greater(t, len(paths), 500)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if !os.IsNotExist(err) { // deleted, and not committed yet
			require.NoError(t, err)
			require.Equal(t, -1, bytes.IndexByte(text, 0), "%s is no text", path)
		}
	}
}

// pages returns the pages for people, by path.
func pages(t *testing.T) map[string][]byte {
	t.Helper()
	all := files(t, ".md")
	maps.DeleteFunc(all, func(path string, _ []byte) bool {
		folder := filepath.ToSlash(filepath.Dir(path))
		return !slices.Contains([]string{".", "docs", "redlock/model"}, folder)
	})
	return all
}

// maxWords are the words that a page may have. What else there is to say replaces something, or is not said.
var maxWords = map[string]int{
	"README.md": 1100, "CHANGELOG.md": 600, "CONTRIBUTING.md": 1500, "SECURITY.md": 850,
	"docs/comparison.md": 1100, "docs/deployments.md": 2750, "docs/design.md": 2850, "docs/evidence.md": 2750,
	"docs/faq.md": 700, "docs/fencing-sql.md": 1800, "docs/fencing.md": 2550, "docs/guarantees.md": 2450,
	"docs/guide.md": 2100, "docs/integrations.md": 3550, "docs/operate.md": 4050, "docs/performance.md": 1200,
	"redlock/model/README.md": 2300,
}

func TestPagesAreShort(t *testing.T) {
	found := pages(t)
	require.Len(t, found, len(maxWords), "pages")
	for path, text := range found {
		n := 0
		for word := range strings.FieldsSeq(string(text)) {
			if words.MatchString(word) {
				n++
			}
		}
		require.LessOrEqual(t, n, maxWords[filepath.ToSlash(path)], "words of %s", path)
	}
}

var (
	pageLink = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]+))?\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

func TestLinksLeadSomewhere(t *testing.T) {
	linked := files(t, ".md")
	maps.Copy(linked, files(t, "llms.txt"))
	for path, text := range linked {
		for _, link := range pageLink.FindAllStringSubmatch(withoutCode.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(link[1], ":") {
				continue
			}
			target := path
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(path), link[1])
			}
			expect.NoError(os.Stat(target)).In(t, path, link[0])
			if link[2] != "" && strings.HasSuffix(target, ".md") {
				require.Contains(t, anchors(t, target), link[2], "%s: %s", path, link[0])
			}
		}
	}
}

// Comments, errors and rules of alerts name a page by its path from the top.
func TestNamedPagesExist(t *testing.T) {
	named := 0
	for path, text := range files(t, "") {
		for _, page := range namedPage.FindAllStringSubmatch(string(text), -1) {
			named++
			expect.NoError(os.Stat(page[1])).In(t, path)
			if page[2] != "" {
				require.Contains(t, anchors(t, page[1]), page[2], path)
			}
		}
	}
	require.Greater(t, named, 100)
}

var namedPage = regexp.MustCompile(`\b((?:docs/[a-z-]+|SECURITY|CONTRIBUTING|CHANGELOG)\.md)(?:#([a-z0-9-]+))?`)

func anchors(t *testing.T, path string) (all []string) {
	t.Helper()
	text := expect.NoError(os.ReadFile(path)).In(t)
	for _, title := range heading.FindAllStringSubmatch(withoutCode.ReplaceAllString(string(text), ""), -1) {
		name := noAnchor.ReplaceAllString(strings.ToLower(title[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

// Every log line, exported error and reason of a loss has a row in the page for operators, and each row is one of them.
func TestRunbookHasEveryLineAndError(t *testing.T) {
	page := expect.NoError(os.ReadFile("docs/operate.md")).In(t)
	var lines, names, reasons []string
	for path, text := range files(t, ".go") {
		folder := filepath.ToSlash(filepath.Dir(path))
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		switch folder {
		case "internal/admin", "internal/engine", "internal/masterset", "internal/transport":
			lines = append(lines, logged(t, text)...)
		case "rwlock", "reentrant", "fencing":
			for _, name := range errorName.FindAllStringSubmatch(string(text), -1) {
				names = append(names, folder+"."+name[1])
			}
			for _, reason := range lossReason.FindAllStringSubmatch(string(text), -1) {
				reasons = append(reasons, reason[1])
			}
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "fencing.ErrLost" }) // rwlock.ErrLost
	require.ElementsMatch(t, rows(t, string(page), "Lines of the log"), lines)
	require.ElementsMatch(t, rows(t, string(page), "Errors"), names)
	require.ElementsMatch(t, rows(t, string(page), "Reasons of a loss"), reasons)
}

var (
	errorName  = regexp.MustCompile(`(?m)^\s+(Err[A-Z][A-Za-z]*) += `)
	lossReason = regexp.MustCompile(`Reason = "([^"]+)"`)
	row        = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
)

// rows returns what the rows of a section's tables name first in backquotes.
func rows(t *testing.T, page, section string) (all []string) {
	t.Helper()
	_, text, found := strings.Cut(page, "\n## "+section+"\n")
	require.True(t, found, section)
	text, _, _ = strings.Cut(text, "\n## ")
	for _, match := range row.FindAllStringSubmatch(text, -1) {
		all = append(all, match[1])
	}
	require.NotEmpty(t, all, section)
	return all
}

// logged returns the messages of a file's log lines, also those by way of a variable "message".
func logged(t *testing.T, text []byte) (all []string) {
	t.Helper()
	file := expect.NoError(parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)).In(t)
	add := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text := expect.NoError(strconv.Unquote(lit.Value)).In(t)
			all = append(all, text)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if ok && len(n.Args) > 1 && slices.Contains([]string{"warn", "warnOfServer", "info", "Warn", "Info"}, f.Sel.Name) {
				add(n.Args[0])
			}
		case *ast.AssignStmt:
			if name, ok := n.Lhs[0].(*ast.Ident); ok && name.Name == "message" {
				add(n.Rhs[0])
			}
		}
		return true
	})
	return all
}
