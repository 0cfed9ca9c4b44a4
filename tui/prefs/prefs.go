// Package prefs reads what an operator wants of the console: looks, sounds,
// and keys, from one TOML file, console.toml.
//
// It is strict: what the file says and the console doesn't know is an error in
// one sentence with the remedy, never a silent default. Prefs change how the
// console looks and answers, never what may be done: roles and approvals are
// the engine's. The package reads a file and nothing else; no goroutines.
package prefs

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones by name, also where the machine has none

	"github.com/BurntSushi/toml"

	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/key"
)

// ErrPrefs is wrapped by everything that is wrong with a file of preferences.
var ErrPrefs = errors.New("preferences")

// Env names the file, if it is not where Path looks.
const Env = "FALCON_CONSOLE_CONFIG"

// maxFile bounds what is read of a file.
const maxFile = 64 << 10

// Prefs is what the operator wants.
type Prefs struct {
	Theme  string // "" = by the terminal's background
	ASCII  bool   // draw with ASCII characters only
	Reader bool   // lines for a screen reader in place of the screen
	Mouse  bool   // the console takes the mouse; M gives it back
	Bell   bool   // ring for what needs a look
	Notify bool   // desktop notifications by the terminal
	Hints  bool   // the hint at the first start
	// GPU-hours that a slowdown below 10 % must have cost to be reported by bell and notification
	Price float64
	Keys  *key.Map       // never nil
	Zone  *time.Location // of the times that are shown; never nil
}

// Default is what holds where no file says otherwise.
func Default() Prefs {
	return Prefs{
		Mouse:  true,
		Bell:   true,
		Notify: true,
		Hints:  true,
		Price:  10,
		Keys:   key.Default(),
		Zone:   time.UTC,
	}
}

// Path is where the file is looked for: $FALCON_CONSOLE_CONFIG, else
// $XDG_CONFIG_HOME/falcon/console.toml; "" where there is no home. Named says
// that the operator named it, so that it must exist.
func Path(env func(string) string) (path string, named bool) {
	if p := env(Env); p != "" {
		return p, true
	}
	dir := env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // as the XDG standard wants
		if home := env("HOME"); filepath.IsAbs(home) {
			dir = filepath.Join(home, ".config")
		} else {
			return "", false
		}
	}
	return filepath.Join(dir, "falcon", "console.toml"), false
}

// Load reads a file; the default one may be missing. Errors wrap ErrPrefs and name the file.
func Load(path string, named bool) (Prefs, error) {
	if path == "" {
		return Default(), nil
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) && !named {
		return Default(), nil
	}
	if err != nil {
		return Prefs{}, fmt.Errorf("%w: %w", ErrPrefs, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return Prefs{}, fmt.Errorf("%w: %w", ErrPrefs, err)
	}
	p, err := Parse(text)
	if err != nil {
		return Prefs{}, fmt.Errorf("%w: %s: %w", ErrPrefs, path, err)
	}
	return p, nil
}

// file is the TOML document; a nil pointer was not said.
type file struct {
	Theme  *string  `toml:"theme"`
	ASCII  *bool    `toml:"ascii"`
	Reader *bool    `toml:"screen_reader"`
	Mouse  *bool    `toml:"mouse"`
	Bell   *bool    `toml:"bell"`
	Notify *bool    `toml:"notify"`
	Hints  *bool    `toml:"hints"`
	Price  *float64 `toml:"alert_gpu_hours"`
	Zone   *string  `toml:"time_zone"`
	// the library takes a list for a table silently, so changes looks itself
	Keys map[string]any `toml:"keys"`
}

// known are the settings, for who has mistyped one.
const known = "theme, ascii, screen_reader, mouse, bell, notify, hints, alert_gpu_hours, time_zone, and SCOPE.ACTION under [keys]"

// zoneOf is a zone by its name: "UTC", "local" for this machine's, or as "Europe/Berlin".
func zoneOf(name *string) (*time.Location, error) {
	switch {
	case name == nil:
		return time.UTC, nil
	case *name == "local":
		return time.Local, nil
	case *name == "":
		return nil, errors.New(`time_zone is empty; set "UTC", "local", or a zone such as "Europe/Berlin"`)
	}
	zone, err := time.LoadLocation(*name)
	if err != nil {
		return nil, fmt.Errorf(
			`time_zone %q is not known here; set "UTC", "local", or a zone such as "Europe/Berlin"`,
			clean.String(*name),
		)
	}
	return zone, nil
}

// Parse reads a TOML document.
func Parse(text []byte) (Prefs, error) {
	if len(text) > maxFile {
		return Prefs{}, fmt.Errorf("it is larger than %d KiB; preferences are a few lines", maxFile>>10)
	}
	var f file
	md, err := toml.Decode(string(text), &f)
	if err != nil {
		return Prefs{}, singleLine(err)
	}
	// changes looks there
	unknown := slices.DeleteFunc(md.Undecoded(), func(k toml.Key) bool {
		return k[0] == "keys"
	})
	if len(unknown) > 0 {
		return Prefs{}, fmt.Errorf("there is no setting %q; there are %s", unknown[0].String(), known)
	}
	if md.IsDefined("keys") && md.Type("keys") != "Hash" {
		return Prefs{}, errors.New(
			"keys: write it as a table, [keys], with lines SCOPE.ACTION = [\"key\", …]",
		)
	}
	p := Default()
	overrideWith(&p.Theme, f.Theme)
	overrideWith(&p.ASCII, f.ASCII)
	overrideWith(&p.Reader, f.Reader)
	overrideWith(&p.Mouse, f.Mouse)
	overrideWith(&p.Bell, f.Bell)
	overrideWith(&p.Notify, f.Notify)
	overrideWith(&p.Hints, f.Hints)
	overrideWith(&p.Price, f.Price)
	if !(p.Price >= 0) || math.IsInf(p.Price, 1) {
		return Prefs{}, fmt.Errorf(
			"alert_gpu_hours is %v; set the GPU-hours that a slowdown below 10 %% must have cost to ring, 0 = at once",
			p.Price,
		)
	}
	if p.Zone, err = zoneOf(f.Zone); err != nil {
		return Prefs{}, err
	}
	want, err := keyChanges(f.Keys)
	if err != nil {
		return Prefs{}, err
	}
	if p.Keys, err = p.Keys.Remap(want); err != nil {
		return Prefs{}, err
	}
	return p, nil
}

// keyChanges are the keys asked for, as scope → action → keys.
func keyChanges(tables map[string]any) (map[string]map[string][]string, error) {
	out := map[string]map[string][]string{}
	for scope, v := range tables {
		actions, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("keys.%s: write keys.%s.ACTION = [\"key\", …]", scope, scope)
		}
		out[scope] = map[string][]string{}
		for action, v := range actions {
			keys, ok := textList(v)
			if !ok {
				return nil, fmt.Errorf("keys.%s.%s: write a list of keys, as in [\"f5\", \"ctrl+n\"]",
					scope, action)
			}
			out[scope][action] = keys
		}
	}
	return out, nil
}

func textList(v any) ([]string, bool) {
	list, ok := v.([]any)
	var out []string
	for _, x := range list {
		s, is := x.(string)
		ok = ok && is
		out = append(out, s)
	}
	return out, ok
}

func overrideWith[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// singleLine is a TOML error as one sentence with its line.
func singleLine(err error) error {
	var at toml.ParseError
	if errors.As(err, &at) && at.Message != "" {
		return fmt.Errorf("line %d: %s; mend the line", at.Position.Line, errorClause(at.Message))
	}
	return fmt.Errorf("%s; mend the value", errorClause(err.Error()))
}

func errorClause(s string) string {
	lines := slices.DeleteFunc(strings.Split(s, "\n"), func(l string) bool {
		return strings.TrimSpace(l) == ""
	})
	if len(lines) == 0 {
		return "not TOML"
	}
	return strings.TrimRight(strings.TrimPrefix(lines[0], "toml: "), ".")
}
