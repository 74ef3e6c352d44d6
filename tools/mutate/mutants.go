package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is a change of one place. Tests see it where FENCELOCK_MUTANT is its id.
type mutant struct {
	id     int
	file   string // below the root
	line   int
	change string
	text   string  // the changed line, of a script
	reach  []*test // the shortest first
}

// writeOverlay writes an overlay with all mutants of some folders.
func writeOverlay(root, to string, folders []string) ([]mutant, error) {
	all := make([]mutant, 1) // no mutant has id 0
	replace := map[string]string{}
	add := func(path string, text []byte) error {
		path, err := filepath.Abs(filepath.Join(root, path))
		if err != nil {
			return err
		}
		replace[path] = filepath.Join(to, fmt.Sprint(len(replace), "_", filepath.Base(path)))
		return os.WriteFile(replace[path], text, 0o600)
	}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(root, folder, "*"))
		if err != nil {
			return nil, err
		}
		name, first := "", len(all)
		for _, file := range files {
			path := folder + "/" + filepath.Base(file)
			switch {
			case strings.HasSuffix(path, ".lua"):
				err = mutateLua(file, path, &all)
			case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				var text []byte
				if name, text, err = mutateGo(file, path, &all); err == nil {
					err = add(path, text)
				}
			}
			if err != nil {
				return nil, err
			}
		}
		if err := add(folder+"/mutated.go", helper(name, all[first:])); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	return all, os.WriteFile(filepath.Join(to, "overlay.json"), text, 0o600)
}

// helper is the file that each mutated package gets. A byte of the file FENCELOCK_MUTANTS_REACHED says whether a
// mutant was reached, also in processes that a test starts.
func helper(name string, mutants []mutant) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `package %s

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"syscall"
)

var mutatedOne, mutatedReach = func() (int, []byte) {
	one, _ := strconv.Atoi(os.Getenv("FENCELOCK_MUTANT"))
	file, err := os.OpenFile(os.Getenv("FENCELOCK_MUTANTS_REACHED"), os.O_RDWR, 0)
	if err != nil {
		return one, nil
	}
	defer file.Close()
	info, _ := file.Stat()
	reach, _ := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return one, reach
}()

func mutated(id int) bool {
	if mutatedReach != nil {
		mutatedReach[id] = 1
	}
	return id == mutatedOne
}

func mutatedIs[T comparable](id int, tag, value T) bool { return tag == value && !mutated(id) }

func mutatedLess[T cmp.Ordered](id int, a, b T) bool { return a < b || mutated(id) && a == b }

func mutatedMost[T cmp.Ordered](id int, a, b T) bool { return a < b || !mutated(id) && a == b }

func mutatedSum[T ~int | ~int32 | ~int64 | ~uint64](id int, a, b T) T {
	if mutated(id) {
		return a + b + 1
	}
	return a + b
}

// mutatedText changes a line of an embedded file.
func mutatedText(name string, text []byte) []byte {
	for _, m := range []struct {
		id, line   int
		file, text string
	}{
`, name)
	for _, m := range mutants {
		if strings.HasSuffix(m.file, ".lua") {
			fmt.Fprintf(&b, "{%d, %d, %q, %q},\n", m.id, m.line, filepath.Base(m.file), m.text)
		}
	}
	b.WriteString(`	} {
		if m.file == name && mutated(m.id) {
			lines := strings.SplitAfter(string(text), "\n")
			lines[m.line-1] = m.text + "\n"
			text = []byte(strings.Join(lines, ""))
		}
	}
	return text
}
`)
	return b.Bytes()
}

// insertion is text that goes to a place, behind so many bytes that it replaces. The order of insertions at one place
// follows their expressions: inner ones end before outer ones, and outer ones begin before inner ones.
type insertion struct {
	at, size, rank int
	text           string
}

// goFile mutates the text of one file. Its lines keep their numbers.
type goFile struct {
	path       string
	set        *token.FileSet
	source     []byte
	insertions []insertion
	all        *[]mutant
}

// mutateGo returns the name of the package, and the text with all mutants.
func mutateGo(file, path string, all *[]mutant) (string, []byte, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return "", nil, err
	}
	source = bytes.Replace(source, []byte("strings.Lines(string(text))"),
		[]byte("strings.Lines(string(mutatedText(file, text)))"), 1)
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, err
	}
	f := &goFile{path: path, set: set, source: source, all: all}
	for _, declaration := range tree.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && function.Body != nil {
			f.negateReturns(function.Type, function.Body)
			ast.Inspect(function.Body, f.visit)
		}
	}
	return tree.Name.Name, f.text(), nil
}

func (f *goFile) visit(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.GenDecl:
		return node.Tok == token.VAR
	case *ast.IfStmt:
		f.negate(node.Cond)
	case *ast.ForStmt:
		f.negate(node.Cond)
	case *ast.BlockStmt:
		f.deleteEach(node.List)
	case *ast.FuncLit:
		f.negateReturns(node.Type, node.Body)
	case *ast.SwitchStmt:
		f.missEach(node)
	case *ast.CaseClause:
		f.deleteEach(node.Body)
	case *ast.CommClause:
		f.deleteEach(node.Body)
	case *ast.BinaryExpr:
		f.dropOne(node)
		f.offByOne(node)
	}
	return true
}

func (f *goFile) negate(condition ast.Expr) {
	if condition != nil {
		id := f.mutant(condition, "negated: "+f.of(condition))
		f.wrap(condition, "((", fmt.Sprintf(") != mutated(%d))", id))
	}
}

// negateReturns changes what a function returns as a bool.
func (f *goFile) negateReturns(kind *ast.FuncType, body *ast.BlockStmt) {
	var isBool []bool
	if kind.Results != nil {
		for _, field := range kind.Results.List {
			isBool = append(isBool, slices.Repeat([]bool{f.of(field.Type) == "bool"}, max(1, len(field.Names)))...)
		}
	}
	ast.Inspect(body, func(node ast.Node) bool {
		if node, ok := node.(*ast.ReturnStmt); ok && len(node.Results) == len(isBool) {
			for i, result := range node.Results {
				if isBool[i] {
					f.negate(result)
				}
			}
		}
		_, inner := node.(*ast.FuncLit)
		return !inner
	})
}

// missEach has a switch match none of the values of a case. Conditions are negated.
func (f *goFile) missEach(node *ast.SwitchStmt) {
	if node.Tag != nil && node.Init == nil {
		f.wrap(node.Tag, "mutatedTag := ", ";")
	}
	for _, clause := range node.Body.List {
		for _, value := range clause.(*ast.CaseClause).List {
			if node.Tag == nil {
				f.negate(value)
			} else if node.Init == nil {
				f.wrap(value, fmt.Sprintf("mutatedIs(%d, mutatedTag, ", f.mutant(value, "missed: "+f.of(value))), ")")
			}
		}
	}
}

// dropOne leaves one operand of && or ||.
func (f *goFile) dropOne(node *ast.BinaryExpr) {
	end := map[token.Token]string{token.LAND: ") || mutated(%d))", token.LOR: ") && !mutated(%d))"}[node.Op]
	for _, x := range []ast.Expr{node.X, node.Y} {
		if inner, ok := x.(*ast.BinaryExpr); end != "" && !(ok && inner.Op == node.Op) {
			f.wrap(x, "((", fmt.Sprintf(end, f.mutant(x, "dropped: "+f.of(x)+" of "+f.of(node))))
		}
	}
}

func (f *goFile) deleteEach(statements []ast.Stmt) {
	for _, statement := range statements {
		if f.deletable(statement) {
			id := f.mutant(statement, "deleted: "+f.of(statement))
			f.wrap(statement, fmt.Sprintf("if !mutated(%d) { ", id), " }")
		}
	}
}

// deletable is what a function compiles without. Locks are left: without one a test fails by the race detector alone.
func (f *goFile) deletable(statement ast.Stmt) bool {
	switch statement := statement.(type) {
	case *ast.AssignStmt:
		name, ok := statement.Lhs[0].(*ast.Ident)
		return statement.Tok != token.DEFINE && !(ok && name.Name == "_")
	case *ast.ExprStmt, *ast.DeferStmt:
		text := f.of(statement)
		return !strings.Contains(text, "panic(") && !strings.Contains(text, "ock()")
	case *ast.BranchStmt:
		return statement.Tok == token.BREAK || statement.Tok == token.CONTINUE
	case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
		return true
	}
	return false
}

// offByOne changes a comparison at its bound, or the sum with a constant.
func (f *goFile) offByOne(node *ast.BinaryExpr) {
	if isNumber(node.X) {
		return
	}
	call, end := "", ")"
	switch node.Op {
	case token.LSS:
		call = "mutatedLess(%d, "
	case token.LEQ:
		call = "mutatedMost(%d, "
	case token.GEQ:
		call, end = "!mutatedLess(%d, ", ")"
	case token.GTR:
		call, end = "!mutatedMost(%d, ", ")"
	case token.ADD:
		call = "mutatedSum(%d, "
	}
	if call == "" || node.Op == token.ADD && !isNumber(node.Y) {
		return
	}
	id := f.mutant(node, "off by one: "+f.of(node))
	f.wrap(node, fmt.Sprintf(call, id), end)
	f.insertions = append(f.insertions, insertion{f.offset(node.OpPos), len(node.Op.String()), 0, ","})
}

func isNumber(x ast.Expr) bool {
	literal, ok := x.(*ast.BasicLit)
	return ok && literal.Kind == token.INT
}

func (f *goFile) mutant(node ast.Node, change string) int {
	id := len(*f.all)
	change, _, _ = strings.Cut(change, "\n")
	*f.all = append(*f.all, mutant{id: id, file: f.path, line: f.set.Position(node.Pos()).Line, change: change})
	return id
}

func (f *goFile) of(node ast.Node) string {
	return string(f.source[f.offset(node.Pos()):f.offset(node.End())])
}

func (f *goFile) offset(p token.Pos) int { return f.set.Position(p).Offset }

func (f *goFile) wrap(node ast.Node, before, after string) {
	begin, end := f.offset(node.Pos()), f.offset(node.End())
	n := len(f.insertions)
	f.insertions = append(f.insertions, insertion{begin, 0, 1<<40 - (end-begin)<<16 + n, before},
		insertion{end, 0, -(1 << 40) + (end-begin)<<16 - n, after})
}

func (f *goFile) text() []byte {
	slices.SortFunc(f.insertions, func(a, b insertion) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank))
	})
	var b bytes.Buffer
	done := 0
	for _, i := range f.insertions {
		b.Write(f.source[done:i.at])
		b.WriteString(i.text)
		done = i.at + i.size
	}
	b.Write(f.source[done:])
	return b.Bytes()
}
