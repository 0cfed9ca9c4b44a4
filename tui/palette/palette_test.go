package palette

import (
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon/tui/key"
)

var entries = []Entry{
	{Name: "zoom in", Key: "+", Text: "One cell a rank.", Action: key.ZoomIn},
	{Name: "ranks", Key: "2", Text: "Heatmap of all ranks.", Action: key.ShowRanks},
	{Name: "recovery", Key: "7", Text: "Ranks and nodes that were lost.", Action: key.ShowRecovery},
	{Name: "freeze", Key: "F", Text: "Stop new actions.", Action: key.Freeze},
	{Name: "rank N", Text: "Choose a rank.", Fill: "rank "},
	{Name: "fence NODE WHY", Text: "Replace a node.", Fill: "fence "},
}

func shown(l *List) string {
	var out []string
	list, _ := l.Window(l.Len())
	for _, m := range list {
		out = append(out, m.Name)
	}
	return strings.Join(out, ", ")
}

func TestSearch(t *testing.T) {
	for text, want := range map[string]string{
		"":             "zoom in, ranks, recovery, freeze, rank N, fence NODE WHY",
		"r":            "ranks, recovery, rank N, freeze, zoom in, fence NODE WHY",
		"fr":           "freeze",
		"FREEZE":       "freeze",
		"rank 3":       "rank N",
		"fence n1 fan": "fence NODE WHY",
		"zi":           "zoom in",
		"heatmap":      "ranks",
		"qqq":          "",
	} {
		l := New(entries)
		l.Search(text)
		got := shown(l)
		if text == "r" { // what merely contains the letter may come in any order
			got = got[:len("ranks, recovery, rank N")]
			want = want[:len("ranks, recovery, rank N")]
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestCursorStaysInside(t *testing.T) {
	l := New(entries)
	l.Move(+100)
	if e, ok := l.Chosen(); !ok || e.Name != "fence NODE WHY" {
		t.Errorf("at the end: %v %v", e, ok)
	}
	if list, first := l.Window(3); len(list) != 3 || first != 3 {
		t.Errorf("window %d from %d", len(list), first)
	}
	l.Search("freeze")
	if e, _ := l.Chosen(); e.Action != key.Freeze {
		t.Errorf("a search starts on its best, not on %q", e.Name)
	}
	l.Search("qqq")
	l.Move(-1)
	if _, ok := l.Chosen(); ok {
		t.Error("something is chosen of nothing")
	}
}

func FuzzSearch(f *testing.F) {
	f.Add("rank 3", 2)
	f.Add("é\x00 FENCE ", -9)
	f.Fuzz(func(t *testing.T, text string, by int) {
		l := New(entries)
		l.Search(text)
		l.Move(by % 100)
		list, first := l.Window(4)
		e, ok := l.Chosen()
		if ok != (l.Len() > 0) {
			t.Fatalf("%d fit, chosen %v", l.Len(), ok)
		}
		if ok && !slices.ContainsFunc(list, func(m Match) bool {
			return m.Name == e.Name
		}) {
			t.Fatalf("the chosen entry is not among those shown from %d", first)
		}
		for _, m := range list {
			for _, i := range m.At {
				if i < 0 || i >= len(m.Name) {
					t.Fatalf("%q matches byte %d of %q", text, i, m.Name)
				}
			}
		}
	})
}
