package key

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func remap(scope, action string, keys ...string) map[string]map[string][]string {
	return map[string]map[string][]string{scope: {action: keys}}
}

func TestRemapMovesAnAction(t *testing.T) {
	m, err := Default().Remap(map[string]map[string][]string{
		"ranks":      {"zoom-in": {"ctrl+up", "Z"}},
		"everywhere": {"theme": {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := m.Lookup(name("Z"), Ranks, Global); a != ZoomIn {
		t.Errorf("Z on the ranks page is %q", a)
	}
	if a := m.Lookup(name("+"), Ranks, Global); a != None {
		t.Errorf("+ is still %q", a)
	}
	if a := m.Lookup(name("T"), Global); a != None {
		t.Errorf("T is still %q", a)
	}
	if got := m.ForAction(Ranks, ZoomIn).Help().Key; got != "ctrl-up Z" {
		t.Errorf("the footer shows %q", got)
	}
	if got := Default().Name(ZoomIn, Ranks, Global); got != "+" {
		t.Errorf("the shipped table has changed: %q", got)
	}
	md := m.Markdown()
	if !strings.Contains(md, "| `ctrl-up` `Z` | Zoom in") || !strings.Contains(md, "| (none) | Next theme.") {
		t.Error("the guide does not show the remapped table")
	}
}

// Each refusal is one sentence that says what to do.
func TestRemapRefuses(t *testing.T) {
	for _, c := range []struct {
		change map[string]map[string][]string
		want   string
	}{
		{remap("rank", "zoom-in", "Z"), "there is no scope"},
		{remap("ranks", "zoom", "Z"), "falcon console keys"},
		{remap("ranks", "zoom-in", "a"), "would mean both ranks.zoom-in and everywhere.approve"},
		{remap("everywhere", "theme", "/"), "would mean both"},
		{remap("dialog", "confirm", "f5"), "stay as they are"},
		{remap("dialog", "cancel", "esc", "x"), "stay as they are"},
		{remap("dialog", "right", "enter"), "would mean both"},
		{remap("dialog", "right", "y"), "types a character"},
		{remap("prompt", "confirm"), "needs a key"},
		{remap("everywhere", "quit"), "needs a key"},
		{remap("everywhere", "approve", "enter"), "presses to move"},
		{remap("everywhere", "freeze", "j"), "presses to move"},
		{remap("ladder", "take-rung", "space"), "presses to move"},
		{
			map[string]map[string][]string{
				"grid":   {"left": {"ctrl+x"}},
				"ladder": {"take-rung": {"ctrl+x"}},
			},
			"moves as grid.left",
		},
		{remap("ranks", "zoom-in", "ctrl+i"), `from "tab"`},
		{remap("ranks", "zoom-in", "ctrl+A"), `as "ctrl+a"`},
		{remap("ranks", "zoom-in", "shift+a"), `such as "A"`},
		{remap("ranks", "zoom-in", "pageup"), "is no key"},
		{remap("ranks", "zoom-in", ""), "is no key"},
		{remap("ranks", "zoom-in", "\x1b"), "is no key"},
	} {
		_, err := Default().Remap(c.change)
		if !errors.Is(err, ErrRemap) ||
			!strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want %q", c.change, err, c.want)
		}
	}
}

// Whatever a table is remapped to: it is refused, or keeps every promise of
// the shipped one, as a second, plain check finds them.
func TestRemappedTablesKeepThePromises(t *testing.T) {
	keys := []string{
		"a", "j", "x", "enter", "space", "esc", "ctrl+x", "f5", "F6", "f6", "é", "ctrl+i", "Z",
		"tab",
	}
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		change := map[string]map[string][]string{}
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			b := rapid.SampledFrom(table).Draw(t, "binding")
			change[string(b.Scope)] = map[string][]string{
				string(b.Action): rapid.SliceOfN(rapid.SampledFrom(keys), 0, 2).Draw(t, "keys"),
			}
		}
		m, err := Default().Remap(change)
		if err != nil {
			return
		}
		accepted++
		keepsPromises(t, m)
	})
	if accepted == 0 {
		t.Error("nothing was accepted: the test proves nothing")
	}
}

func keepsPromises(t *rapid.T, m *Map) {
	for _, k := range []string{"esc", "ctrl+c"} {
		if m.Lookup(name(k), Dialog) != Cancel {
			t.Fatalf("%s no longer cancels", k)
		}
	}
	for _, b := range m.Table() {
		if b.Scope == Dialog && slices.Contains(b.Keys(), "enter") != (b.Action == Confirm) {
			t.Fatalf("enter in a dialog is %s", b.Action)
		}
		for _, k := range b.Keys() {
			if got := m.Lookup(name(k), b.Scope, Global); got != b.Action {
				t.Fatalf("%q of %s.%s does %s", k, b.Scope, b.Action, got)
			}
		}
	}
	for _, p := range Pages {
		for _, k := range []string{"j", "k", "h", "l", "enter", "space", "tab", "esc", "up", "down"} {
			if a := m.Lookup(name(k), p, Global); slices.Contains(grave, a) {
				t.Fatalf("%q does %s on %s", k, a, p)
			}
		}
	}
}

func FuzzKeyNames(f *testing.F) {
	for _, b := range table {
		for _, k := range b.Keys() {
			f.Add(k)
		}
	}
	f.Add("ctrl+")
	f.Add("+")
	f.Fuzz(func(t *testing.T, k string) {
		m, err := Default().Remap(remap("ranks", "zoom-in", k))
		if err == nil && m.Lookup(name(k), Ranks, Global) != ZoomIn {
			t.Errorf("%q was taken and does not work", k)
		}
	})
}
