package themes

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
)

func shelf(t *testing.T, files map[string]string) Library {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Library{Dir: dir}
}

func TestOwnThemesLieOverThoseThatShip(t *testing.T) {
	l := shelf(t, map[string]string{
		"mine.toml":  "base = \"light\"\n[roles.good]\nfg = [\"#000001\", \"17\", \"4\"]\n",
		"dark.toml":  "base = \"dark\"\nbackground = [\"#000000\", \"16\", \"0\"]\n",
		"a\x1b.toml": "", "..toml": "", "notes.txt": "",
	})
	names := l.Names()
	if len(names) != len(Names())+1 || !slices.Contains(names, "mine") {
		t.Errorf("names %q", names)
	}
	mine, stamp, err := l.Load("mine")
	if err != nil ||
		mine.Name != "mine" ||
		mine.Kind != "light" ||
		stamp == (Stamp{}) ||
		stamp != l.Stamp("mine") {
		t.Fatalf("%+v %v %v", mine, stamp, err)
	}
	pal := mine.Palette(colorprofile.TrueColor)
	base := load(t, "light").Palette(colorprofile.TrueColor)
	if pal.Style(Good) == base.Style(Good) ||
		pal.Style(Bad) != base.Style(Bad) ||
		pal.Heat != base.Heat {
		t.Error("a theme with a base is not its base but for what it says")
	}
	dark, _, err := l.Load("dark")
	if err != nil || dark.Palette(colorprofile.TrueColor).Background != kindRGB {
		t.Errorf("%v: the shipped dark is not covered", err)
	}
	if load(t, "dark").Palette(colorprofile.TrueColor).Background == kindRGB {
		t.Error("the shipped theme was changed")
	}
	for _, name := range []string{"nope", "../dark", "", "a/b"} {
		if _, _, err := l.Load(name); !errors.Is(err, ErrTheme) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestThemesAreStrict(t *testing.T) {
	for text, want := range map[string]string{
		"base = \"dark\"\ncolour = 1":                         `"colour" is unknown`,
		"base = \"dark\"\n[roles.txet]\nfg = []":              `no role "txet"`,
		"base = \"dark\"\n[roles.text]\nattr = \"blink\"":     `"blink" is none of`,
		"base = \"dark\"\n[ramps.cold]\ntruecolor = []":       `no ramp "cold"`,
		"base = \"dark\"\n[roles.text]\nfg = [\"#12\"]":       "1 colours instead of 3",
		"base = \"nope\"":                                     `no theme "nope"`,
		"base = \"dark\"\nname = ":                            "line 2",
		"base = \"dark\"\n[ramps.heat]\nansi256 = [\"1\"]":    "1 steps",
		"base = \"dark\"\nbackground = [\"x\", \"1\", \"2\"]": "#rrggbb",
	} {
		_, err := Parse([]byte(text))
		if !errors.Is(err, ErrTheme) ||
			!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	l := shelf(t, map[string]string{"big.toml": strings.Repeat("#", maxFile+1)})
	if _, _, err := l.Load("big"); !errors.Is(err, ErrTheme) {
		t.Errorf("a file that is too large: %v", err)
	}
}

func TestDir(t *testing.T) {
	for want, env := range map[string]map[string]string{
		"/x/falcon/themes":         {"XDG_CONFIG_HOME": "/x", "HOME": "/h"},
		"/h/.config/falcon/themes": {"XDG_CONFIG_HOME": "rel", "HOME": "/h"},
		"":                         {},
	} {
		if got := Dir(func(k string) string { return env[k] }); got != want {
			t.Errorf("%v: %q", env, got)
		}
	}
}

// Whatever a file holds, it is a whole theme or an error of this package.
func FuzzParse(f *testing.F) {
	for _, n := range Names() {
		data, err := files.ReadFile(n + ".toml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("base = \"dark\"\n[roles.text]\nfg = [\"#ffffff\", \"231\", \"default\"]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		th, err := Parse(data)
		if err != nil {
			if !errors.Is(err, ErrTheme) {
				t.Fatal(err)
			}
			return
		}
		for _, p := range Profiles {
			th.Palette(p) // panics where something is missing
		}
	})
}
