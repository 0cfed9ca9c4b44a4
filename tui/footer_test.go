package tui

import (
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

// lastRow is the footer as it is read.
func lastRow(m *Model) string {
	rows := strings.Split(strings.TrimRight(text(m), "\n"), "\n")
	return rows[len(rows)-1]
}

// Every page, at every size: help, freeze and quit are in the footer, and can be clicked.
func TestFooterKeepsHelpFreezeQuit(t *testing.T) {
	for _, size := range [][2]int{
		{minWidth, minHeight},
		{72, 20},
		{80, 24},
		{100, 30},
		{120, 40},
		{160, 50},
		{200, 60},
	} {
		for _, p := range key.Pages {
			for _, mo := range moments {
				m := screen(
					t,
					mo,
					p,
					size[0],
					size[1],
					"dark",
					colorprofile.TrueColor,
					false,
				)
				row := lastRow(m)
				for _, want := range []string{"? help", "F freeze", "q quit"} {
					if !strings.Contains(row, want) {
						t.Errorf("page %s, %s, %d×%d: %q lacks %q",
							p, mo.name, size[0], size[1], row, want)
					}
				}
			}
		}
	}
}

// A key in the footer is tapped where it is shown, behind the mark of what was left out too.
func TestFooterTapsWhatItShows(t *testing.T) {
	for _, w := range []int{60, 80, 120, 200} {
		m := screen(
			t,
			moments[1],
			key.Ranks,
			w,
			24,
			"dark",
			colorprofile.TrueColor,
			false,
		)
		row := lastRow(m)
		at := strings.Index(row, "? help")
		cells := len([]rune(row[:at]))
		m.View()
		m.Update(tea.MouseClickMsg{X: cells, Y: 23, Button: tea.MouseLeft})
		if m.help == nil {
			t.Errorf("%d columns: a click on %q at %d opened nothing", w, "? help", cells)
		}
	}
}

// What does not fit goes from the end of the page's own keys, and a mark says that there are more.
func TestFooterCutsTheLastFirst(t *testing.T) {
	list := key.Default().Footer(key.Ranks, key.Global)
	for w := minWidth - 2; w < 150; w++ {
		f := fitFooter(list, w)
		text, _ := f.draw(
			screen(
				t,
				moment{"x", 54, 0, enginetest.Options{}},
				key.Ranks,
				80,
				24,
				"dark",
				colorprofile.ASCII,
				false,
			).skin,
			0,
			0,
			w,
		)
		own := slices.DeleteFunc(slices.Clone(list), func(b key.Binding) bool {
			return f.cut && slices.Contains(alwaysShown, b.Action)
		})
		for i, b := range f.page {
			if b.Action != own[i].Action {
				t.Fatalf("%d columns: %s in the place of %s", w, b.Action, own[i].Action)
			}
		}
		if n := ansi.StringWidth(text); n > w {
			t.Fatalf("%d columns: %d used: %q", w, n, text)
		}
		if f.cut != strings.Contains(text, footerMore) {
			t.Fatalf("%d columns: cut %v, %q", w, f.cut, text)
		}
	}
}
