package key

import (
	"strings"
	"testing"
)

// name is a key as the terminal library names it.
type name string

func (n name) String() string { return string(n) }

// A key may mean one thing only wherever it is looked up: alone in the modal
// scopes, page and global together on a page. No key that decides may be one
// that moves.
func TestShippedTableIsSound(t *testing.T) {
	if err := Default().checkConflicts(); err != nil {
		t.Error(err)
	}
	for _, b := range table {
		for _, k := range b.Keys() {
			if err := checkKeyName(k); err != nil {
				t.Errorf("%s.%s: %v", b.Scope, b.Action, err)
			}
		}
	}
}

func TestEveryBindingIsWhole(t *testing.T) {
	for _, b := range Default().Table() {
		if b.Action == None ||
			len(b.Keys()) == 0 ||
			b.Help().Key == "" ||
			b.Help().Desc == "" ||
			!strings.HasSuffix(b.Sentence, ".") {
			t.Errorf("binding %+v lacks something", b)
		}
		for _, k := range b.Keys() {
			if Default().Lookup(name(k), b.Scope) != b.Action {
				t.Errorf("%s %q is not found again", b.Scope, k)
			}
		}
	}
}

// Nothing that changes the job may hang on one key beside the movement keys.
func TestDangerIsNotNextToMovement(t *testing.T) {
	for _, k := range []string{"h", "j", "k", "l", "left", "right", "up", "down", "enter", " "} {
		switch a := Default().Lookup(name(k), Global); a {
		case Approve, Veto, Freeze, Mode, Quit:
			t.Errorf("%q does %s", k, a)
		}
	}
}

func TestReservedKeysAreSilent(t *testing.T) {
	for _, k := range []string{"9"} {
		if a := Default().Lookup(name(k), Overview, Global); a != None {
			t.Errorf("%q does %s before its page exists", k, a)
		}
	}
}

func TestLookupPrefersTheFirstScope(t *testing.T) {
	if a := Default().Lookup(name("n"), Posterior, Global); a != Next {
		t.Errorf("n on the posterior is %q", a)
	}
	if a := Default().Lookup(name("a"), Dialog); a != None {
		t.Errorf("a inside a dialog is %q", a)
	}
}

func TestFooterOrder(t *testing.T) {
	var words []string
	for _, b := range Default().Footer(Ranks, Global) {
		words = append(words, b.Help().Desc)
	}
	if got, want := strings.Join(words, " "),
		"anomaly zoom metric posterior filter pick test help command mode freeze quit"; got != want {
		t.Errorf("the footer reads %q, want the page's keys first, most useful first: %q", got, want)
	}
}

func TestMarkdownHoldsEveryBinding(t *testing.T) {
	md := Default().Markdown()
	for _, b := range Default().Table() {
		if !strings.Contains(md, b.Sentence) {
			t.Errorf("the guide lacks %q", b.Sentence)
		}
	}
}
