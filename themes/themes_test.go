package themes

import (
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
)

const leastContrast = 4.5 // WCAG 2 AA for text

func load(t *testing.T, name string) *Theme {
	t.Helper()
	th, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return th
}

func TestEveryThemeLoads(t *testing.T) {
	names := Names()
	for _, want := range []string{"dark", "light", "high-contrast", "mono"} {
		if !strings.Contains(" "+strings.Join(names, " ")+" ", " "+want+" ") {
			t.Errorf("theme %s is missing from %v", want, names)
		}
	}
	for _, n := range names {
		if th := load(t, n); th.Name != n {
			t.Errorf("theme file %s is named %q inside", n, th.Name)
		}
	}
}

// Text must be readable where the theme decides on both colours.
func TestContrast(t *testing.T) {
	for _, n := range Names() {
		for _, p := range []colorprofile.Profile{colorprofile.ANSI256, colorprofile.TrueColor} {
			pal := load(t, n).Palette(p)
			for _, r := range Roles {
				s := pal.Style(r)
				bg := s.BG
				if bg == 0 {
					bg = pal.Background
				}
				if r == Border {
					continue // lines, not text; see TestBorderIsVisible
				}
				if c := Contrast(s.FG, bg); c < leastContrast {
					t.Errorf("%s %s %s: contrast %.2f", n, p, r, c)
				}
				if s.BG != 0 {
					continue
				}
				if c := Contrast(s.FG, pal.Style(Dialog).BG); c < leastContrast {
					t.Errorf("%s %s %s on a dialog: contrast %.2f", n, p, r, c)
				}
			}
		}
	}
}

func TestBorderIsVisible(t *testing.T) {
	for _, n := range Names() {
		for _, p := range []colorprofile.Profile{colorprofile.ANSI256, colorprofile.TrueColor} {
			pal := load(t, n).Palette(p)
			if c := Contrast(pal.Style(Border).FG, pal.Background); c < 3 {
				t.Errorf("%s %s: border contrast %.2f", n, p, c)
			}
		}
	}
}

func TestRampsAreOrderedAndDistinct(t *testing.T) {
	for _, n := range Names() {
		for _, p := range []colorprofile.Profile{
			colorprofile.ANSI,
			colorprofile.ANSI256,
			colorprofile.TrueColor,
		} {
			pal := load(t, n).Palette(p)
			checkRamp(t, n+" "+p.String()+" heat", pal.Heat, p)
			checkRamp(t, n+" "+p.String()+" posterior", pal.Posterior, p)
		}
	}
}

// checkRamp wants luminance to run one way. With 16 colours neighbours may
// share a colour, as glyphs tell levels apart there, but at least 3 differ.
func checkRamp(t *testing.T, name string, ramp [Levels]Color, p colorprofile.Profile) {
	t.Helper()
	up := ramp[Levels-1].Luminance() > ramp[0].Luminance()
	seen := map[Color]bool{ramp[0]: true}
	for i := 1; i < Levels; i++ {
		d := ramp[i].Luminance() - ramp[i-1].Luminance()
		if (d > 0) != up && ramp[i] != ramp[i-1] {
			t.Errorf("%s: step %d goes against the ramp", name, i)
		}
		seen[ramp[i]] = true
	}
	want := Levels
	if p == colorprofile.ANSI {
		want = 3
	}
	if len(seen) < want {
		t.Errorf("%s: %d distinct colours, want %d", name, len(seen), want)
	}
}

func TestInkIsReadableOnEveryLevel(t *testing.T) {
	for _, n := range Names() {
		for _, p := range []colorprofile.Profile{colorprofile.ANSI256, colorprofile.TrueColor} {
			pal := load(t, n).Palette(p)
			for i, bg := range pal.Heat {
				if s := pal.Ink(bg); Contrast(s.FG, s.BG) < leastContrast {
					t.Errorf("%s %s level %d: contrast %.2f", n, p, i, Contrast(s.FG, s.BG))
				}
			}
		}
	}
}

func TestNoColorHasNone(t *testing.T) {
	for _, n := range Names() {
		pal := load(t, n).Palette(colorprofile.ASCII)
		for _, r := range Roles {
			if s := pal.Style(r); s.FG != 0 || s.BG != 0 {
				t.Errorf("%s %s carries a colour", n, r)
			}
		}
		for _, r := range []Role{Urgent, Selected, Focus, Culprit} {
			if pal.Style(r).Attr == 0 {
				t.Errorf("%s %s can't be distinguished from plain text", n, r)
			}
		}
	}
}

func TestProfilesResolve(t *testing.T) {
	for _, p := range Profiles {
		if load(t, Default).Palette(p).Profile != p {
			t.Errorf("profile %s is lost", p)
		}
	}
}

func TestBadThemesAreRefusedInOneSentence(t *testing.T) {
	for name, text := range map[string]string{
		"syntax":  "name = ",
		"kind":    `name = "x"`,
		"missing": "name = \"x\"\nkind = \"dark\"",
	} {
		_, err := Parse([]byte(text))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if strings.Count(err.Error(), "\n") > 3 {
			t.Errorf("%s: %q", name, err)
		}
	}
	if _, err := Load("nope"); err == nil || !strings.Contains(err.Error(), "choose one of dark") {
		t.Errorf("unknown theme: %v", err)
	}
}

// Both forms of a style must look the same.
func TestLipglossFormIsTheSameStyle(t *testing.T) {
	for _, n := range Names() {
		for _, p := range Profiles {
			pal := load(t, n).Palette(p)
			for _, r := range Roles {
				s := pal.Style(r)
				st := s.Lipgloss()
				for _, is := range []struct {
					bit Attr
					got bool
				}{
					{Bold, st.GetBold()},
					{Faint, st.GetFaint()},
					{Underline, st.GetUnderline()},
					{Reverse, st.GetReverse()},
				} {
					if (s.Attr&is.bit != 0) != is.got {
						t.Errorf("%s %s %s: attribute %d is lost", n, p, r, is.bit)
					}
				}
				if got, want := ansi.Style(nil).ForegroundColor(s.FG.Terminal()).String(),
					"\x1b["+string(s.FG.AppendSGR(nil, false))+"m"; s.FG != 0 &&
					got != want {
					t.Errorf("%s %s %s: foreground %q, want %q", n, p, r, got, want)
				}
			}
		}
	}
}
