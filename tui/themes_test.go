package tui

import (
	"os"
	"path/filepath"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// A theme's file that changes is shown again; a broken one keeps the old look
// and says why, once.
func TestThemeIsReadAgainWhenItsFileChanges(t *testing.T) {
	dir := t.TempDir()
	put := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "mine.toml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("base = \"dark\"\n[roles.text]\nfg = [\"#ffffff\", \"231\", \"15\"]\n")
	src := &still{state: stateAt(t, enginetest.Options{}, 30, 0, wide)}
	m := quiet(
		t,
		src,
		Options{
			Theme:  "mine",
			Now:    newClock().now,
			Themes: themes.Library{Dir: dir},
		},
		80,
		24,
	)
	first := m.skin.pal.Style(themes.Text)
	look := func() { answer(m, m.themes.watchFile()) }
	look()
	if m.skin.pal.Style(themes.Text) != first || m.notes.text != "" {
		t.Error("an unchanged file was shown again")
	}
	put("base = \"dark\"\n[roles.text]\nfg = [\"#00ff00\", \"46\", \"10\"] # longer\n")
	look()
	second := m.skin.pal.Style(themes.Text)
	if second == first {
		t.Error("the change is not shown")
	}
	put("base = \"dark\"\n[roles.txet]\nfg = [\"#00ff00\", \"46\", \"10\"] # longer still\n")
	look()
	if m.skin.pal.Style(themes.Text) != second ||
		!containsAll(m.notes.text, "the theme stays as it is", `no role "txet"`) {
		t.Errorf("toast %q", m.notes.text)
	}
	m.notes.text = ""
	look()
	if m.notes.text != "" {
		t.Error("told twice")
	}
}

func TestThemesAreStepped(t *testing.T) {
	m := quiet(
		t,
		&still{state: stateAt(t, enginetest.Options{}, 30, 0, wide)},
		Options{Theme: "dark", Now: newClock().now},
		80,
		24,
	)
	seen := map[string]bool{}
	for range themes.Names() {
		answer(m, m.themes.nextTheme())
		seen[m.themes.theme.Name] = true
	}
	if len(seen) != len(themes.Names()) {
		t.Errorf("T shows %v", seen)
	}
	answer(m, m.themes.chooseTheme("nope"))
	if !containsAll(m.notes.text, `no theme "nope"`) {
		t.Errorf("toast %q", m.notes.text)
	}
	light := quiet(
		t,
		&still{state: m.src.Latest()},
		Options{Now: newClock().now},
		80,
		24,
	)
	_, cmd := light.Update(tea.BackgroundColorMsg{Color: themes.Color(0x03ffffff).Terminal()})
	answer(light, cmd)
	if light.themes.theme.Name != "light" {
		t.Errorf("on a white terminal: %s", light.themes.theme.Name)
	}
}
