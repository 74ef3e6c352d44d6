package repo_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// codeName is what a page writes in backquotes as a name of Go code: a name with a dot, or one with a capital inside.
var codeName = regexp.MustCompile("`(?:([A-Za-z]\\w*)\\.)?([A-Za-z]\\w*)(?:\\(\\))?`")

// inGo is a name that looks like one of Go alone.
var inGo = regexp.MustCompile(`^[a-z]+[A-Z][a-z]`)

var extension = regexp.MustCompile(`^(?:go|lua|md|sh|pml|txt|json|yaml|sql|mutant|diff)$`)

// declared are the names of the repository's code.
type declared struct {
	all     map[string]bool            // every identifier
	members map[string]map[string]bool // by type: its methods and fields
	embeds  map[string][]string        // by type: the names of the types that it embeds
}

// has reports whether a type, or one that it embeds, has the member. Of types of other modules nothing is known.
func (d declared) has(of, member string) bool {
	if d.members[of] == nil || d.members[of][member] {
		return true
	}
	return slices.ContainsFunc(d.embeds[of], func(inner string) bool { return d.has(inner, member) })
}

func (d declared) add(t *testing.T, path string, text []byte) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
	require.NoError(t, err)
	member := func(of, name string) {
		if d.members[of] == nil {
			d.members[of] = map[string]bool{}
		}
		d.members[of][name] = true
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			d.all[n.Name] = true
		case *ast.SelectorExpr:
			d.all[nameOf(n.X)+"."+n.Sel.Name] = true
		case *ast.FuncDecl:
			if n.Recv != nil {
				member(nameOf(n.Recv.List[0].Type), n.Name.Name)
			}
		case *ast.TypeSpec:
			member(n.Name.Name, "")
			if s, is := n.Type.(*ast.StructType); is {
				for _, field := range s.Fields.List {
					for _, name := range field.Names {
						member(n.Name.Name, name.Name)
					}
					if field.Names == nil {
						d.embeds[n.Name.Name] = append(d.embeds[n.Name.Name], nameOf(field.Type))
					}
				}
			}
		}
		return true
	})
}

// nameOf returns the name of a type without its package, or "" for one without a name.
func nameOf(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return nameOf(e.X)
	case *ast.IndexExpr:
		return nameOf(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// missing returns the names of a page that no code has. A member of a type that the code declares must be one of its
// methods or fields, or stand so in the code. Other names are of packages, libraries and servers: the code uses
// them.
func (d declared) missing(page string) (gone []string) {
	for _, m := range codeName.FindAllStringSubmatch(page, -1) {
		of, name := m[1], m[2]
		if extension.MatchString(name) {
			continue // a file
		}
		variable := !token.IsExported(of) && token.IsExported(name) // or a package: it has the name of no type
		switch {
		case of == "" && inGo.MatchString(name) && !d.all[name],
			of != "" && !variable && !d.all[of+"."+name] && !d.has(of, name):
			gone = append(gone, m[0])
		}
	}
	return gone
}

// A page names no function, method or field of this code that is gone.
func TestPagesNameCodeThatThereIs(t *testing.T) {
	code := declared{map[string]bool{}, map[string]map[string]bool{}, map[string][]string{}}
	for path, text := range files(t, ".go") {
		if !strings.HasSuffix(path, "_test.go") {
			code.add(t, path, text)
		}
	}
	for _, text := range []string{"`Master.connected`", "`Node.meaning`", "`maskForeignEnd`", "`sendAsideNow()`"} {
		require.Equal(t, []string{text}, code.missing(text))
	}
	require.Empty(t, code.missing("`Master.Vote`, `Node.nameFailure`, `OOM`, `redis.call`, `maxmemory`"))
	for path, text := range files(t, ".md") {
		if slices.Contains([]string{"integrations.md", "comparison.md"}, filepath.Base(path)) {
			continue // they name the code of others
		}
		require.Empty(t, code.missing(string(text)), path)
	}
}
