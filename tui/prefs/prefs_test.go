package prefs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/failslow/falcon/tui/key"
)

type name string

func (n name) String() string { return string(n) }

func TestParseTakesWhatIsSaid(t *testing.T) {
	p, err := Parse([]byte(
		"theme = \"mono\"\nmouse = false\nhints = false\n\n[keys]\nranks.zoom-in = [\"Z\"]\n\"everywhere\".theme = []\n",
	))
	if err != nil {
		t.Fatal(err)
	}
	if p.Theme != "mono" || p.Mouse || p.Hints || !p.Bell || !p.Notify || p.ASCII {
		t.Errorf("%+v", p)
	}
	if a := p.Keys.Lookup(name("Z"), key.Ranks, key.Global); a != key.ZoomIn {
		t.Errorf("Z is %q", a)
	}
	if a := p.Keys.Lookup(name("T"), key.Global); a != key.None {
		t.Errorf("T is %q", a)
	}
}

func TestTimeZone(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "UTC",
		"time_zone = \"UTC\"":           "UTC",
		"time_zone = \"local\"":         "Local",
		"time_zone = \"Europe/Berlin\"": "Europe/Berlin",
	} {
		if p, err := Parse([]byte(text)); err != nil || p.Zone.String() != want {
			t.Errorf("%q: %v, %v", text, p.Zone, err)
		}
	}
}

func TestParseRefusesInOneSentence(t *testing.T) {
	for text, want := range map[string]string{
		"colour = 1":                           `there is no setting "colour"; there are theme`,
		"[key]\nx = 1":                         `there is no setting "key"`,
		"mouse = \"no\"":                       "mouse",
		"theme = ":                             "line 1",
		"[keys]\nranks.zoom-in = \"Z\"":        "keys.ranks.zoom-in",
		"[keys]\nranks.zoom-in = [\"a\"]":      "would mean both",
		"[keys]\ndialog.confirm = [\"f5\"]":    "stay as they are",
		"[keys]\nranks = [\"Z\"]":              "keys.ranks",
		"[keys]\nranks.zoom = [\"Z\"]":         "falcon console keys",
		"time_zone = \"Mars/Olympus\"":         `time_zone "Mars/Olympus" is not known here; set "UTC"`,
		"time_zone = \"\"":                     "time_zone is empty",
		"keys = 3":                             "as a table",
		"[[keys]]\nx = 1":                      "as a table",
		"a = \"" + strings.Repeat("x", 70<<10): "larger than",
	} {
		_, err := Parse([]byte(text))
		if err == nil ||
			!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

func TestPath(t *testing.T) {
	for _, c := range []struct {
		env   map[string]string
		path  string
		named bool
	}{
		{map[string]string{Env: "x.toml", "HOME": "/h"}, "x.toml", true},
		{map[string]string{"XDG_CONFIG_HOME": "/c", "HOME": "/h"}, "/c/falcon/console.toml", false},
		{
			map[string]string{"XDG_CONFIG_HOME": "relative", "HOME": "/h"},
			"/h/.config/falcon/console.toml",
			false,
		},
		{map[string]string{}, "", false},
	} {
		path, named := Path(func(k string) string { return c.env[k] })
		if path != c.path || named != c.named {
			t.Errorf("%v: %q, %v", c.env, path, named)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "none.toml")
	broken := filepath.Join(dir, "broken.toml")
	if p, err := Load(missing, false); err != nil || !p.Mouse || p.Keys == nil {
		t.Errorf("without a file: %+v, %v", p, err)
	}
	if _, err := Load(missing, true); !errors.Is(err, ErrPrefs) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a named file that is missing: %v", err)
	}
	if err := os.WriteFile(broken, []byte("mouse = 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(broken, false); !errors.Is(err, ErrPrefs) || !strings.Contains(err.Error(), broken) {
		t.Errorf("a broken file: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("theme = \"dark\"\nmouse = true\n[keys]\nranks.zoom-in = [\"Z\", \"ctrl+up\"]\n"))
	f.Add([]byte("[keys]\n\"\".\"\" = [\"\"]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text)
		switch {
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("more than one line: %q", err)
		case err == nil && p.Keys.Lookup(name("esc"), key.Dialog) != key.Cancel:
			t.Error("esc no longer cancels")
		}
	})
}
