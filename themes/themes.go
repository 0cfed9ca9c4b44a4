// Package themes holds the console's palettes as data and resolves them for
// one terminal's colour profile.
//
// Every role and ramp is written by hand for truecolor, 256, 16 and no
// colour, because automatic down-sampling loses the order of a ramp. A style
// comes in two forms: compact for the cells of a raster, which are compared
// and written by the ten thousand, and as a lipgloss style for all else. The
// package guarantees that a loaded theme names every role and that each ramp
// has Levels steps. It owns no goroutines, does no I/O beyond its embedded
// files, and must not know what the console draws.
package themes

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/BurntSushi/toml"
	"github.com/charmbracelet/colorprofile"
)

//go:embed *.toml
var files embed.FS

// ErrTheme is wrapped by every error about a theme.
var ErrTheme = errors.New("themes: bad theme")

// Levels is the number of steps in every ramp: 0 is healthy, or improbable.
const Levels = 7

// Default is the theme for a terminal whose background is unknown.
const Default = "dark"

// Profiles are the colour profiles that themes are written for, from poorest
// to richest; a terminal of any other profile gets no colour.
var Profiles = []colorprofile.Profile{
	colorprofile.ASCII,
	colorprofile.ANSI,
	colorprofile.ANSI256,
	colorprofile.TrueColor,
}

func hasColours(p colorprofile.Profile) bool {
	return p >= colorprofile.ANSI
}

// Attr is a set of text attributes; they exist in every profile.
type Attr uint8

// Text attributes.
const (
	Bold Attr = 1 << iota
	Faint
	Underline
	Reverse
)

// Style is how one cell is drawn. A zero colour leaves what is there.
type Style struct {
	FG, BG Color
	Attr   Attr
}

// Lipgloss is the style for everything that is not a cell of a raster.
func (s Style) Lipgloss() lipgloss.Style {
	st := lipgloss.NewStyle().Bold(s.Attr&Bold != 0).Faint(s.Attr&Faint != 0).
		Underline(s.Attr&Underline != 0).Reverse(s.Attr&Reverse != 0)
	if s.FG != 0 {
		st = st.Foreground(s.FG.Terminal())
	}
	if s.BG != 0 {
		st = st.Background(s.BG.Terminal())
	}
	return st
}

// With returns the style with further attributes.
func (s Style) With(a Attr) Style {
	s.Attr |= a
	return s
}

// Role is a meaning that text can have.
type Role string

// The roles that each theme defines.
const (
	Text     Role = "text"
	Dim      Role = "dim"
	Title    Role = "title"
	Accent   Role = "accent"
	Good     Role = "good"
	Warn     Role = "warn"
	Bad      Role = "bad"
	Culprit  Role = "culprit"
	Stale    Role = "stale"
	Lost     Role = "lost"
	Header   Role = "header"
	Urgent   Role = "urgent" // a proposal that waits
	Auto     Role = "auto"   // the engine may act by itself
	Key      Role = "key"
	Selected Role = "selected"
	Dialog   Role = "dialog"
	Button   Role = "button"
	Focus    Role = "focus" // the focused button
	Border   Role = "border"
)

// Roles lists every role.
var Roles = []Role{
	Text, Dim, Title, Accent, Good, Warn, Bad, Culprit, Stale, Lost,
	Header, Urgent, Auto, Key, Selected, Dialog, Button, Focus, Border,
}

// Theme is one palette in all profiles.
type Theme struct {
	Name string
	Kind string // "dark" or "light"
	file file
}

type file struct {
	Name string `toml:"name"`
	// a theme that ships: what this file doesn't say is taken from it
	Base       string          `toml:"base"`
	Kind       string          `toml:"kind"`
	Background []string        `toml:"background"`
	Roles      map[Role]spec   `toml:"roles"`
	Ramps      map[string]ramp `toml:"ramps"`
}

// spec holds colours as {truecolor, 256, 16}; an empty list inherits.
type spec struct {
	FG   []string `toml:"fg"`
	BG   []string `toml:"bg"`
	Attr string   `toml:"attr"`
	None string   `toml:"none"` // attributes when there is no colour
}

type ramp struct {
	TrueColor []string `toml:"truecolor"`
	ANSI256   []string `toml:"ansi256"`
	ANSI16    []string `toml:"ansi16"`
}

// Names lists the themes that ship, sorted.
func Names() []string {
	entries, _ := fs.Glob(files, "*.toml")
	for i, e := range entries {
		entries[i] = strings.TrimSuffix(e, ".toml")
	}
	slices.Sort(entries)
	return entries
}

// Load reads a theme that ships.
func Load(name string) (*Theme, error) {
	data, err := files.ReadFile(name + ".toml")
	if err != nil {
		return nil, fmt.Errorf("%w: there is no theme %q; choose one of %s",
			ErrTheme, name, strings.Join(Names(), ", "))
	}
	return Parse(data)
}

// Parse reads a theme from TOML and checks that nothing is missing, and that it
// says nothing that isn't understood. A theme with a base needs to say only
// what differs from it.
func Parse(data []byte) (*Theme, error) {
	f, err := decodeTheme(data)
	if err != nil {
		return nil, err
	}
	if f.Base != "" {
		if f, err = f.overlayOn(f.Base); err != nil {
			return nil, err
		}
	}
	if f.Kind != "dark" && f.Kind != "light" {
		return nil, fmt.Errorf("%w: kind %q is neither dark nor light", ErrTheme, f.Kind)
	}
	t := &Theme{Name: f.Name, Kind: f.Kind, file: f}
	for _, p := range Profiles {
		if _, err := t.resolvePalette(p); err != nil {
			return nil, fmt.Errorf("%w %q: %w", ErrTheme, f.Name, err)
		}
	}
	return t, nil
}

func decodeTheme(data []byte) (file, error) {
	var f file
	meta, err := toml.Decode(string(data), &f)
	if err != nil {
		at := ""
		var parse toml.ParseError
		if errors.As(err, &parse) {
			at = fmt.Sprintf("line %d: ", parse.Position.Line)
			err = errors.New(parse.Message)
		}
		return f, fmt.Errorf("%w: %s%w", ErrTheme, at, err)
	}
	if odd := meta.Undecoded(); len(odd) > 0 {
		return f, fmt.Errorf(
			"%w: the key %q is unknown; a theme has name, kind, base, background, [roles.ROLE] with fg, bg, attr, none, and [ramps.heat] and [ramps.posterior] with truecolor, ansi256, ansi16",
			ErrTheme, odd[0].String(),
		)
	}
	for r, s := range f.Roles {
		if !slices.Contains(Roles, r) {
			return f, fmt.Errorf("%w: there is no role %q", ErrTheme, r)
		}
		for _, w := range strings.Fields(s.Attr + " " + s.None) {
			if parseAttributes(w) == 0 {
				return f, fmt.Errorf("%w: role %q: %q is none of bold, faint, underline, reverse",
					ErrTheme, r, w)
			}
		}
	}
	for name := range f.Ramps {
		if name != "heat" && name != "posterior" {
			return f, fmt.Errorf("%w: there is no ramp %q; there are heat and posterior", ErrTheme, name)
		}
	}
	return f, nil
}

// overlayOn lays what a file says over a theme that ships.
func (f file) overlayOn(base string) (file, error) {
	under, err := Load(base)
	if err != nil {
		return f, err
	}
	out := under.file
	out.Roles = maps.Clone(out.Roles)
	out.Ramps = maps.Clone(out.Ramps)
	out.Name = cmp.Or(f.Name, out.Name)
	out.Kind = cmp.Or(f.Kind, out.Kind)
	if len(f.Background) > 0 {
		out.Background = f.Background
	}
	maps.Copy(out.Roles, f.Roles)
	for name, r := range f.Ramps {
		was := out.Ramps[name]
		out.Ramps[name] = ramp{
			orDefault(r.TrueColor, was.TrueColor),
			orDefault(r.ANSI256, was.ANSI256),
			orDefault(r.ANSI16, was.ANSI16),
		}
	}
	return out, nil
}

func orDefault(list, otherwise []string) []string {
	if len(list) > 0 {
		return list
	}
	return otherwise
}

// Palette resolves the theme for one profile.
func (t *Theme) Palette(p colorprofile.Profile) *Palette {
	pal, err := t.resolvePalette(p)
	if err != nil {
		panic("themes: a parsed theme resolves: " + err.Error())
	}
	return pal
}

func (t *Theme) resolvePalette(p colorprofile.Profile) (*Palette, error) {
	pal := &Palette{Name: t.Name, Profile: p, roles: map[Role]Style{}}
	bg, err := pickForProfile(t.file.Background, p)
	if err != nil {
		return nil, fmt.Errorf("background: %w", err)
	}
	pal.Background = bg
	for _, r := range Roles {
		s, ok := t.file.Roles[r]
		if !ok {
			return nil, fmt.Errorf("role %q is missing", r)
		}
		if pal.roles[r], err = s.parseStyle(p); err != nil {
			return nil, fmt.Errorf("role %q: %w", r, err)
		}
	}
	if pal.Heat, err = t.resolveRamp("heat", p); err != nil {
		return nil, err
	}
	pal.Posterior, err = t.resolveRamp("posterior", p)
	return pal, err
}

func (t *Theme) resolveRamp(name string, p colorprofile.Profile) ([Levels]Color, error) {
	var out [Levels]Color
	if !hasColours(p) {
		return out, nil
	}
	r := t.file.Ramps[name]
	list := map[colorprofile.Profile][]string{
		colorprofile.ANSI:      r.ANSI16,
		colorprofile.ANSI256:   r.ANSI256,
		colorprofile.TrueColor: r.TrueColor,
	}[p]
	if len(list) != Levels {
		return out, fmt.Errorf("ramp %q has %d steps for %s instead of %d", name, len(list), p, Levels)
	}
	for i, s := range list {
		c, err := parseColor(s, p)
		if err != nil {
			return out, fmt.Errorf("ramp %q: %w", name, err)
		}
		out[i] = c
	}
	return out, nil
}

func (s spec) parseStyle(p colorprofile.Profile) (Style, error) {
	if !hasColours(p) {
		return Style{Attr: parseAttributes(s.None)}, nil
	}
	fg, err := pickForProfile(s.FG, p)
	if err != nil {
		return Style{}, err
	}
	bg, err := pickForProfile(s.BG, p)
	return Style{FG: fg, BG: bg, Attr: parseAttributes(s.Attr)}, err
}

// pickForProfile takes the profile's entry of {truecolor, 256, 16}.
func pickForProfile(list []string, p colorprofile.Profile) (Color, error) {
	if len(list) == 0 || !hasColours(p) {
		return 0, nil
	}
	if len(list) != 3 {
		return 0, fmt.Errorf("%d colours instead of 3 (truecolor, 256, 16)", len(list))
	}
	return parseColor(list[colorprofile.TrueColor-p], p)
}

func parseColor(s string, p colorprofile.Profile) (Color, error) {
	if s == "" || s == "default" {
		return 0, nil
	}
	if p == colorprofile.TrueColor {
		v, err := strconv.ParseUint(strings.TrimPrefix(s, "#"), 16, 24)
		if err != nil || len(s) != 7 {
			return 0, fmt.Errorf("colour %q is not of the form #rrggbb", s)
		}
		return kindRGB | Color(v), nil
	}
	limit := uint64(15)
	kind := kind16
	if p == colorprofile.ANSI256 {
		limit, kind = 255, kind256
	}
	v, err := strconv.ParseUint(s, 10, 16)
	if err != nil || v > limit {
		return 0, fmt.Errorf("colour %q is not an index from 0 to %d", s, limit)
	}
	return kind | Color(v), nil
}

func parseAttributes(s string) Attr {
	var a Attr
	for _, w := range strings.Fields(s) {
		switch w {
		case "bold":
			a |= Bold
		case "faint":
			a |= Faint
		case "underline":
			a |= Underline
		case "reverse":
			a |= Reverse
		}
	}
	return a
}
