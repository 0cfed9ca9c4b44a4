package falcon_test

import (
	"go/ast"
	"go/parser"
	"slices"
	"strings"
	"testing"
)

// sentences are fields that hold text for people, and their accessors.
var sentences = []string{
	"Reason", "RevertReason", "WholeWhy", "Evidence", "Why", "Note", "Text", "Message", "Refused",
	"Lack", "Summary",
	"GetReason", "GetRevertReason", "GetWholeWhy", "GetEvidence", "GetWhy", "GetNote",
	"GetText", "GetMessage", "GetRefused",
}

// predicates of package strings read a text.
var predicates = []string{
	"Contains", "HasPrefix", "HasSuffix", "Cut", "CutPrefix", "CutSuffix", "Index", "LastIndex",
	"EqualFold", "TrimPrefix", "TrimSuffix", "Fields", "Split",
}

// readsProse are the functions that may read a sentence, each with its reason.
var readsProse = map[string]string{
	"recovery/restore.go signOf":      "converts journals of before the signs",
	"recovery/restore.go wholeWhyOf":  "converts journals of before WholeWhy",
	"mitigate/before.go revertKindOf": "converts journals of before the kinds of reverts",
	"backend/engine/report.go names":  "lines of journals from before they had a subject",
}

// decides are the folders whose code decides: what is wrong, what is planned, ordered or said.
var decides = []string{
	"detect", "mitigate", "recovery", "backend/engine", "backend/learn", "backend/fleet",
	"backend/statements",
}

// No decision reads a sentence: facts are typed, and sentences are rendered from them.
func TestNoDecisionReadsASentence(t *testing.T) {
	used := map[string]bool{}
	for _, f := range tree(t) {
		// readers of files and of their texts
		if f.test ||
			!inside(f.dir, decides) ||
			inside(f.dir, []string{"detect/autopsy", "detect/trace"}) {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || !hasPredicate(fn.Body) {
				continue
			}
			at := f.dir + "/" + f.name + " " + fn.Name.Name
			if used[at] = true; readsProse[at] == "" {
				t.Errorf("%s reads a sentence: give the fact a typed field", at)
			}
		}
	}
	for at := range readsProse {
		if !used[at] {
			t.Errorf("%s does not read a sentence any more: take it off the list", at)
		}
	}
}

func inside(dir string, of []string) bool {
	return slices.ContainsFunc(of, func(d string) bool {
		return dir == d || strings.HasPrefix(dir, d+"/")
	})
}

// hasPredicate reports whether a function gives a sentence to a predicate, or compares one
// with another than "".
func hasPredicate(body ast.Node) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			found = found || isPredicate(n.Fun) && slices.ContainsFunc(n.Args, isSentence)
		case *ast.SwitchStmt:
			found = found || n.Tag != nil && isSentence(n.Tag)
		}
		return !found
	})
	return found
}

// isPredicate reports whether a function is one of package strings that read a text.
func isPredicate(fun ast.Expr) bool {
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "strings" && slices.Contains(predicates, sel.Sel.Name)
}

// The rule finds what it forbids.
func TestSentencesAreFound(t *testing.T) {
	for code, want := range map[string]bool{
		`strings.HasPrefix(a.RevertReason, "undone")`: true,
		`strings.Contains(f.Evidence[0], "gone")`:     true,
		`strings.Contains(line.GetText(), id)`:        true,
		`strings.Contains(n.Name, id)`:                false,
		`fmt.Sprintf("%s", a.Reason)`:                 false,
		// a sentence inside another call: its own call is looked at
		`strings.TrimSuffix(strings.TrimSpace(reason), "; x")`: false,
	} {
		e, err := parser.ParseExpr(code)
		if err != nil {
			t.Fatal(err)
		}
		if got := hasPredicate(e); got != want {
			t.Errorf("%s: %v", code, got)
		}
	}
}

// isSentence reports whether an expression is one of the fields, or an element of one.
func isSentence(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return slices.Contains(sentences, e.Sel.Name)
	case *ast.CallExpr:
		return isSentence(e.Fun)
	case *ast.IndexExpr:
		return isSentence(e.X)
	case *ast.Ident:
		return e.Name == "reason" || e.Name == "evidence"
	}
	return false
}
