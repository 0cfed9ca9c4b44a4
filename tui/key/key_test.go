package key

import (
	"strings"
	"testing"
)

// A key may mean one thing only wherever it is looked up: alone in the modal
// scopes, page and global together on a page.
func TestNoKeyMeansTwoThings(t *testing.T) {
	sets := [][]Scope{{Dialog}, {Prompt}, {Help}, {Global}}
	for _, p := range Pages {
		sets = append(sets, []Scope{p, Global})
	}
	for _, set := range sets {
		seen := map[string]Binding{}
		for _, s := range set {
			for _, b := range In(s) {
				for _, k := range b.Keys {
					if old, dup := seen[k]; dup {
						t.Errorf("%v: %q means %s and %s", set, k, old.Action, b.Action)
					}
					seen[k] = b
				}
			}
		}
	}
}

func TestEveryBindingIsWhole(t *testing.T) {
	for _, b := range Table() {
		if b.Action == None || len(b.Keys) == 0 || b.Show == "" || b.Short == "" || !strings.HasSuffix(b.Help, ".") {
			t.Errorf("binding %+v lacks something", b)
		}
		for _, k := range b.Keys {
			if Lookup(k, b.Scope) != b.Action {
				t.Errorf("%s %q is not found again", b.Scope, k)
			}
		}
	}
}

// Nothing that changes the job may hang on one key beside the movement keys.
func TestDangerIsNotNextToMovement(t *testing.T) {
	for _, k := range []string{"h", "j", "k", "l", "left", "right", "up", "down", "enter", " "} {
		switch a := Lookup(k, Global); a {
		case Approve, Veto, Freeze, Mode, Quit:
			t.Errorf("%q does %s", k, a)
		}
	}
}

func TestReservedKeysAreSilent(t *testing.T) {
	for _, k := range []string{"6", "7"} {
		if a := Lookup(k, Overview, Global); a != None {
			t.Errorf("%q does %s before its page exists", k, a)
		}
	}
}

func TestLookupPrefersTheFirstScope(t *testing.T) {
	if a := Lookup("n", Posterior, Global); a != Next {
		t.Errorf("n on the posterior is %q", a)
	}
	if a := Lookup("a", Dialog); a != None {
		t.Errorf("a inside a dialog is %q", a)
	}
}

func TestFooterOrder(t *testing.T) {
	list := Footer(Ranks, Global)
	if len(list) == 0 || list[0].Scope != Ranks || list[len(list)-1].Scope != Global {
		t.Fatalf("page keys must come first: %v", list)
	}
	for i := 1; i < len(list); i++ {
		if list[i].Scope == list[i-1].Scope && list[i].Footer < list[i-1].Footer {
			t.Errorf("%s before %s", list[i-1].Short, list[i].Short)
		}
	}
}

func TestMarkdownHoldsEveryBinding(t *testing.T) {
	md := Markdown()
	for _, b := range Table() {
		if !strings.Contains(md, b.Help) {
			t.Errorf("the guide lacks %q", b.Help)
		}
	}
}
