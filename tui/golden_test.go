package tui

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

var update = flag.Bool("update", false, "rewrite the golden views")

// moment is a point of the story worth a picture.
type moment struct {
	name          string
	iter, approve int64
	options       enginetest.Options
}

var moments = []moment{
	{"healthy", 30, 0, enginetest.Options{}},
	{"proposed", enginetest.Proposed + 4, 0, enginetest.Options{}},
	{"closed", 225, enginetest.Proposed + 1, enginetest.Options{}},
	{"finished", enginetest.End, enginetest.Proposed + 1, enginetest.Options{Stray: 230}},
	{"large", 120, 0, enginetest.Options{TP: 8, DP: 32, PP: 8}},
}

var sizes = [][2]int{{80, 24}, {120, 40}, {200, 60}}

// drawsAlone skips what only draws, thousands of times, in the short run under
// the race detector: nothing runs beside it, and the whole run has it.
func drawsAlone(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("drawing alone: left to the run without -short")
	}
}

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

func text(m *Model) string {
	return ansi.Strip(m.View().Content)
}

// screen composes one page of one moment.
func screen(
	t testing.TB,
	mo moment,
	p key.Scope,
	w, h int,
	theme string,
	profile colorprofile.Profile,
	ascii bool,
) *Model {
	t.Helper()
	src := &still{state: stateAt(t, mo.options, mo.iter, mo.approve, feed.Want{
		Rank:       -1,
		Columns:    int32(w),
		RunLengths: 128,
		Recent:     60,
	})}
	m, err := New(src, Options{
		Theme:   theme,
		Profile: &profile,
		Now:     newClock().now,
		ASCII:   ascii,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Update(tea.WindowSizeMsg{Width: w, Height: h})
	m.work.showPage(p)
	m.screen.dirty = true
	return m
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test ./tui -update rewrites it); got:\n%s", path, got)
	}
}

// trimRows drops trailing blanks, so that the files stay readable.
func trimRows(s string) string {
	rows := strings.Split(s, "\n")
	for i := range rows {
		rows[i] = strings.TrimRight(rows[i], " ")
	}
	return strings.Join(rows, "\n") + "\n"
}

// Words and places of every page and moment, at the smallest size; larger
// sizes at the moment that has most to show.
func TestGoldenText(t *testing.T) {
	for _, p := range key.Pages {
		for _, mo := range moments {
			m := screen(t, mo, p, 80, 24, "dark", colorprofile.TrueColor, false)
			golden(
				t,
				fmt.Sprintf("text/%s-%s-80x24.txt", p, mo.name),
				trimRows(text(m)),
			)
		}
		for _, s := range sizes[1:] {
			m := screen(
				t,
				moments[1],
				p,
				s[0],
				s[1],
				"dark",
				colorprofile.TrueColor,
				false,
			)
			golden(
				t,
				fmt.Sprintf("text/%s-proposed-%dx%d.txt", p, s[0], s[1]),
				trimRows(text(m)),
			)
		}
		m := screen(t, moments[1], p, 80, 24, "dark", colorprofile.ASCII, true)
		golden(t, fmt.Sprintf("text/%s-proposed-80x24-ascii.txt", p), trimRows(text(m)))
	}
}

// Every page, moment, size, profile and theme: exact geometry, the same words, and the styles that
// are in use. The styles of each page's cells are kept at the moment that has most to show.
func TestGoldenStyled(t *testing.T) {
	drawsAlone(t)
	styles := inks{}
	for _, p := range key.Pages {
		for _, mo := range moments {
			for _, s := range sizes {
				name := fmt.Sprintf("%s-%s", p, mo.name)
				pic := picture(t, name, s[0], s[1], func(l look) string {
					m := screen(t, mo, p, s[0], s[1], l.theme, l.profile, false)
					view := m.View().Content
					checkGeometry(t, view, s[0], s[1])
					return view
				})
				styles.add(pic)
				if mo.name == "proposed" && s == sizes[0] {
					golden(t, fmt.Sprintf("styled/%s.txt", pic.name), pic.inkMap())
				}
			}
		}
	}
	golden(t, "styled/pages.txt", styles.table())
	for _, profile := range themes.Profiles {
		m := screen(t, moments[1], key.Overview, 80, 24, "dark", profile, false)
		golden(
			t,
			fmt.Sprintf("styled/overview-proposed-80x24-%s.ansi", strings.ToLower(profile.String())),
			m.View().Content+"\n",
		)
	}
}

func checkGeometry(t *testing.T, view string, w, h int) {
	t.Helper()
	rows := strings.Split(ansi.Strip(view), "\n")
	if len(rows) != h {
		t.Fatalf("%d rows instead of %d", len(rows), h)
	}
	for _, r := range rows {
		if got := ansi.StringWidth(r); got != w {
			t.Fatalf("a row is %d wide instead of %d: %q", got, w, r)
		}
	}
}

// sgr is a sequence that selects a style.
var sgr = regexp.MustCompile("\x1b\\[([0-9;:]*)m")

// checkColours wants no colour that the profile can't show.
func checkColours(t *testing.T, view string, p colorprofile.Profile) {
	t.Helper()
	for _, seq := range sgr.FindAllStringSubmatch(view, -1) {
		if got := richness(strings.Split(seq[1], ";")); got > p {
			t.Fatalf("profile %s: %q in the view", p, seq[0])
		}
	}
}

// richness is the poorest profile that can show a sequence.
func richness(params []string) colorprofile.Profile {
	most := colorprofile.ASCII
	for i := 0; i < len(params); i++ {
		n, _ := strconv.Atoi(params[i])
		switch {
		case (n == 38 || n == 48) && i+1 < len(params) && params[i+1] == "2":
			return colorprofile.TrueColor
		case n == 38 || n == 48:
			most = max(most, colorprofile.ANSI256)
			i += 2
		case n >= 30 && n <= 47 || n >= 90 && n <= 107:
			most = max(most, colorprofile.ANSI)
		}
	}
	return most
}

// overlays are what lies over a page, and the keys that open it.
var overlays = []struct {
	name string
	keys []string
}{
	{"approve", []string{"a"}},
	{"veto", []string{"v"}},
	{"mode", []string{"c"}},
	{"help", []string{"?"}},
	{"runbook", []string{"R"}},
	{"command", []string{":"}},
}

// Dialogs, help, prompt and the small summary.
func TestGoldenOverlays(t *testing.T) {
	styles := inks{}
	for _, o := range overlays {
		for _, s := range sizes {
			pic := picture(t, "overlay-"+o.name, s[0], s[1], func(l look) string {
				m := screen(t, moments[1], key.Overview, s[0], s[1], l.theme, l.profile, false)
				for _, k := range o.keys {
					m.Update(keyMsg(k))
				}
				return m.View().Content
			})
			styles.add(pic)
			if s[0] < 200 {
				golden(t, fmt.Sprintf("text/%s.txt", pic.name), pic.text(0))
			}
		}
		m := screen(
			t,
			moments[1],
			key.Overview,
			80,
			24,
			"dark",
			colorprofile.ASCII,
			true,
		)
		for _, k := range o.keys {
			m.Update(keyMsg(k))
		}
		golden(t, "text/overlay-"+o.name+"-80x24-ascii.txt", trimRows(text(m)))
	}
	golden(t, "styled/overlays.txt", styles.table())
	m := screen(
		t,
		moments[1],
		key.Overview,
		50,
		12,
		"dark",
		colorprofile.TrueColor,
		false,
	)
	golden(t, "text/summary-50x12.txt", trimRows(text(m)))
}

// Any size, any moment, any page: never a panic, never a burst row.
func TestEverySizeIsExact(t *testing.T) {
	drawsAlone(t)
	mo := moments[1]
	for _, p := range key.Pages {
		for w := 1; w < 140; w += 23 {
			for h := 1; h < 50; h += 11 {
				m := screen(t, mo, p, w, h, "dark", colorprofile.ANSI256, false)
				checkGeometry(t, m.View().Content, w, h)
				for _, k := range []string{"a", "esc", "?", "esc", "j", "l", "n", "+", "-", "G", "g", "m"} {
					m.Update(keyMsg(k))
					m.View()
				}
			}
		}
	}
}

func TestViewIsCached(t *testing.T) {
	m := screen(
		t,
		moments[1],
		key.Overview,
		120,
		40,
		"dark",
		colorprofile.TrueColor,
		false,
	)
	m.View()
	n := m.screen.drawn
	for range 100 {
		m.View()
	}
	m.Update(tea.MouseMotionMsg{})
	m.View()
	if m.screen.drawn != n {
		t.Errorf("composed %d times more without a change", m.screen.drawn-n)
	}
}

func BenchmarkCompose120x40(b *testing.B) {
	m := screen(
		b,
		moments[1],
		key.Overview,
		120,
		40,
		"dark",
		colorprofile.TrueColor,
		false,
	)
	b.ReportAllocs()
	for b.Loop() {
		m.screen.dirty = true
		m.View()
	}
}

func BenchmarkComposeDialog120x40(b *testing.B) {
	m := screen(
		b,
		moments[1],
		key.Overview,
		120,
		40,
		"dark",
		colorprofile.TrueColor,
		false,
	)
	m.Update(keyMsg("a"))
	b.ReportAllocs()
	for b.Loop() {
		m.screen.dirty = true
		m.View()
	}
}

func BenchmarkComposeRanks200x60Of100k(b *testing.B) {
	mo := moment{"huge", 120, 0, enginetest.Options{TP: 8, DP: 781, PP: 16}}
	m := screen(b, mo, key.Ranks, 200, 60, "dark", colorprofile.TrueColor, false)
	b.ReportAllocs()
	for b.Loop() {
		m.screen.dirty = true
		m.View()
	}
}
