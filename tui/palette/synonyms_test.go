package palette

import "testing"

// A command is found by other words for it, behind those that are called so.
func TestSynonyms(t *testing.T) {
	list := []Entry{
		{Name: "back", Text: "Go back."},
		{
			Name: "lift NODE WHY",
			Text: "Lift a fence.",
			Fill: "lift ",
			Also: []string{"unfence", "back", "uncordon"},
		},
		{Name: "fence NODE WHY", Text: "Replace a node.", Fill: "fence ", Also: []string{"drain", "kill"}},
		{Name: "overkill", Text: "Much."},
	}
	for text, want := range map[string]string{
		"unfence": "lift NODE WHY", "unf": "lift NODE WHY", "back": "back, lift NODE WHY",
		"drain": "fence NODE WHY", "kill": "fence NODE WHY, overkill", "UNCORDON": "lift NODE WHY",
	} {
		l := New(list)
		l.Search(text)
		if got := shown(l); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
