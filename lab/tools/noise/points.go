package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// kind is a kind of operations that order goroutines.
type kind string

const (
	mutex     kind = "mutex"
	atomic    kind = "atomic"
	syncOther kind = "sync" // the rest of package sync
	channel   kind = "channel"
	callback  kind = "callback" // a function in a variable or a field, or a method of an interface of this module
	goroutine kind = "go"
)

var kinds = []kind{mutex, atomic, syncOther, channel, callback, goroutine}

// What is inserted. The package with the points is in the same workspace as the module that gets them.
const (
	pointPackage = "schedulenoise"
	pointPath    = "github.com/seed74116694/fencelock/lab/tools/noise/" + pointPackage

	point  = pointPackage + ".Point()"
	before = point + "; "
	after  = "; " + point
	open   = pointPackage + ".After("
)

// file finds the operations of one file and where points go. The stack of a node holds the nodes around it, the
// outermost first.
type file struct {
	positions *token.FileSet
	info      *types.Info
	module    string
	explore   bool
	report    *report
	inserted  map[insertion]int // how often: expressions may begin or end at one place
}

type insertion struct {
	at   int // offset in the file
	rank int // the order of insertions at one place
	text string
}

// withPoints returns the text with points.
func (f *file) withPoints(syntax *ast.File, text []byte) ([]byte, error) {
	f.inserted = map[insertion]int{}
	taken := false
	ast.PreorderStack(syntax, nil, func(n ast.Node, stack []ast.Node) bool {
		id, named := n.(*ast.Ident)
		taken = taken || named && id.Name == pointPackage
		f.visit(n, stack)
		return true
	})
	if taken {
		return nil, fmt.Errorf("%s: the name %s is taken", f.positions.Position(syntax.Pos()), pointPackage)
	}
	if len(f.inserted) == 0 {
		return text, nil
	}
	f.insert(syntax.Name.End(), 0, fmt.Sprintf("; import %q", pointPath))
	places := make([]insertion, 0, len(f.inserted))
	for place := range f.inserted {
		places = append(places, place)
	}
	slices.SortFunc(places, func(a, b insertion) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank))
	})
	var result []byte
	done := 0
	for _, place := range places {
		result = append(result, text[done:place.at]...)
		result = append(result, strings.Repeat(place.text, f.inserted[place])...)
		done = place.at
	}
	return append(result, text[done:]...), nil
}

func (f *file) visit(n ast.Node, stack []ast.Node) {
	switch n := n.(type) {
	case *ast.CallExpr:
		if k := f.kindOf(n); k != "" && !(f.explore && k == callback) {
			f.surround(n, stack, k)
		}
	case *ast.UnaryExpr:
		if n.Op == token.ARROW && !isCase(n, stack) {
			f.surround(n, stack, channel)
		}
	case *ast.SendStmt:
		if !isCase(n, stack) {
			f.surround(n, stack, channel)
		}
	case *ast.GoStmt:
		if !f.explore {
			f.surround(n, stack, goroutine)
		}
	case *ast.SelectStmt:
		f.surround(n, stack, channel)
		for _, clause := range n.Body.List {
			f.begin(clause.(*ast.CommClause).Colon)
		}
	case *ast.RangeStmt:
		if _, ok := f.info.TypeOf(n.X).Underlying().(*types.Chan); ok {
			f.surround(n, stack, channel)
			f.begin(n.Body.Lbrace)
		}
	case *ast.SelectorExpr:
		called := len(stack) > 0 && isCallOf(stack[len(stack)-1], n)
		if !called && f.kindOfFunction(f.info.Uses[n.Sel]) != "" {
			f.leaveOut(n, types.ExprString(n)+" is not called here")
		}
	}
}

func isCallOf(n ast.Node, fun ast.Expr) bool {
	call, ok := n.(*ast.CallExpr)
	return ok && call.Fun == fun
}

// isCase reports whether n is the communication of a case of a select statement, which has points of its own.
func isCase(n ast.Node, stack []ast.Node) bool {
	for i := len(stack) - 1; i >= 0; i-- {
		switch parent := stack[i].(type) {
		case *ast.CommClause:
			return parent.Comm == n
		case *ast.ExprStmt, *ast.ParenExpr:
			n = parent
		case *ast.AssignStmt:
			if !slices.ContainsFunc(parent.Rhs, func(e ast.Expr) bool { return e == n }) {
				return false
			}
			n = parent
		default:
			return false
		}
	}
	return false
}

// kindOf returns the kind of a call, "" if it orders no goroutines.
func (f *file) kindOf(call *ast.CallExpr) kind {
	fun := ast.Unparen(call.Fun)
	switch index := fun.(type) { // a generic function with its types
	case *ast.IndexExpr:
		if _, generic := f.info.TypeOf(index.X).(*types.Signature); generic {
			fun = ast.Unparen(index.X)
		}
	case *ast.IndexListExpr:
		fun = ast.Unparen(index.X)
	}
	var object types.Object
	switch fun := fun.(type) {
	case *ast.Ident:
		object = f.info.Uses[fun]
	case *ast.SelectorExpr:
		object = f.info.Uses[fun.Sel]
	case *ast.FuncLit:
		return ""
	}
	switch object := object.(type) {
	case *types.Builtin:
		if object.Name() == "close" {
			return channel
		}
		return ""
	case *types.Func:
		return f.kindOfFunction(object)
	}
	if f.info.Types[call.Fun].IsType() {
		return "" // a conversion
	}
	return callback
}

func (f *file) kindOfFunction(object types.Object) kind {
	function, ok := object.(*types.Func)
	if !ok || function.Pkg() == nil {
		return ""
	}
	from, signature := function.Pkg().Path(), function.Signature()
	isLock := slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock", "TryLock", "TryRLock"}, function.Name())
	ours := from == f.module || strings.HasPrefix(from, f.module+"/")
	switch {
	case from == "sync" && isLock, isLock && ours && signature.Params().Len()+signature.Results().Len() == 0:
		return mutex
	case from == "sync":
		return syncOther
	case from == "sync/atomic":
		return atomic
	case ours && signature.Recv() != nil && types.IsInterface(signature.Recv().Type()):
		return callback
	}
	return ""
}

// surround puts points around an operation: before the statement that it is part of, and right after the expression.
func (f *file) surround(n ast.Node, stack []ast.Node, k kind) {
	statement := enclosing(n, stack)
	wrapped := f.wrap(n, stack)
	switch {
	case statement != nil:
		f.around(statement, n)
	case !wrapped:
		f.leaveOut(n, "an operation outside of a function")
		return
	}
	f.report.operations[k]++
}

// enclosing returns the innermost statement that is in a list of statements, and so can have others around it.
func enclosing(n ast.Node, stack []ast.Node) ast.Stmt {
	for i := len(stack) - 1; i >= 0; i-- {
		var list []ast.Stmt
		switch parent := stack[i].(type) {
		case *ast.BlockStmt:
			list = parent.List
		case *ast.CaseClause:
			list = parent.Body
		case *ast.CommClause:
			list = parent.Body
		}
		switch statement := n.(type) {
		case *ast.CaseClause, *ast.CommClause: // the list of a switch or select has nothing else
		case ast.Stmt:
			if slices.Contains(list, statement) {
				return statement
			}
		}
		n = stack[i]
	}
	return nil
}

// around puts points before and after the statement. A deferred operation gets deferred points, which run in the
// reverse order.
func (f *file) around(statement ast.Stmt, n ast.Node) {
	if deferred, ok := statement.(*ast.DeferStmt); ok && deferred.Call == n {
		f.once(statement.Pos(), 2, "defer "+before)
		if !f.explore {
			f.once(statement.End(), 1, "; defer "+point)
		}
		return
	}
	textBefore := f.textBefore(n)
	f.once(statement.Pos(), 2, textBefore)
	if f.explore && textBefore != "" {
		return // what other goroutines do while it has the lock, they may do before that
	}
	isOperation := statement == n
	switch statement := statement.(type) {
	case *ast.SelectStmt, *ast.RangeStmt: // their bodies begin with a point
		return
	case *ast.ExprStmt:
		isOperation = f.info.Types[statement.X].IsVoid() && ast.Unparen(statement.X) == n
	case *ast.AssignStmt: // with several results: one result is wrapped
		isOperation = slices.ContainsFunc(statement.Rhs, func(e ast.Expr) bool {
			_, several := f.info.TypeOf(e).(*types.Tuple)
			return several && ast.Unparen(e) == n
		})
	case *ast.GoStmt:
		isOperation = isOperation || statement.Call == n
	}
	if isOperation {
		f.once(statement.End(), 1, after)
	}
}

// textBefore returns what stands before the statement of an operation. An explored lock is asked whether it is free.
func (f *file) textBefore(n ast.Node) string {
	if !f.explore {
		return before
	}
	call, ok := n.(*ast.CallExpr)
	if !ok || f.kindOf(call) != mutex {
		return ""
	}
	method := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	name, isLock := strings.CutSuffix(method.Sel.Name, "Lock")
	if from := f.info.Uses[method.Sel].Pkg().Path(); from != "sync" || !isLock || strings.HasPrefix(name, "Try") {
		return ""
	}
	lock := types.ExprString(method.X)
	return fmt.Sprintf("%s.BeforeLock(%s.Try%sLock, %s.%sUnlock); ", pointPackage, lock, name, lock, name)
}

// wrap puts a point after an expression with one value.
func (f *file) wrap(n ast.Node, stack []ast.Node) bool {
	expression, ok := n.(ast.Expr)
	if !ok || !f.info.Types[expression].IsValue() {
		return false
	}
	if _, several := f.info.TypeOf(expression).(*types.Tuple); several {
		return false
	}
	switch stack[len(stack)-1].(type) {
	case *ast.DeferStmt, *ast.GoStmt: // the call itself: its arguments have another parent
		return false
	}
	f.insert(expression.Pos(), 3, open)
	f.insert(expression.End(), 0, ")")
	f.report.points++
	return true
}

// begin puts a point at the begin of a body, after its brace or colon.
func (f *file) begin(opening token.Pos) { f.once(opening+1, 1, " "+before) }

func (f *file) once(at token.Pos, rank int, text string) {
	if text == "" {
		return
	}
	place := insertion{f.positions.Position(at).Offset, rank, text}
	if f.inserted[place] == 0 {
		f.inserted[place] = 1
		f.report.points++
	}
}

func (f *file) insert(at token.Pos, rank int, text string) {
	f.inserted[insertion{f.positions.Position(at).Offset, rank, text}]++
}

func (f *file) leaveOut(n ast.Node, why string) {
	at := f.positions.Position(n.Pos())
	place := path.Join(f.report.folder, filepath.Base(at.Filename))
	f.report.without = append(f.report.without, fmt.Sprintf("%s:%d: %s", place, at.Line, why))
}
