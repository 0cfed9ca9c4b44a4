package themes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxFile bounds what is read of a theme's file.
const maxFile = 64 << 10

// Library is the themes that ship, and over them those of a folder, by name.
// The zero value holds the shipped ones only.
type Library struct {
	Dir string // "" = none; it may be missing
}

// Stamp is the version of a theme's file; zero for a theme that ships.
type Stamp struct {
	mod  time.Time
	size int64
}

// Dir is where an operator's themes are looked for:
// $XDG_CONFIG_HOME/falcon/themes; "" where there is no home.
func Dir(env func(string) string) string {
	dir := env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // as the XDG standard wants
		if dir = env("HOME"); !filepath.IsAbs(dir) {
			return ""
		}
		dir = filepath.Join(dir, ".config")
	}
	return filepath.Join(dir, "falcon", "themes")
}

// Names lists all themes, sorted.
func (l Library) Names() []string {
	names := Names()
	if l.Dir == "" {
		return names
	}
	found, _ := filepath.Glob(filepath.Join(l.Dir, "*.toml")) // the pattern is well-formed
	for _, f := range found {
		if n := strings.TrimSuffix(filepath.Base(f), ".toml"); plainName(n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// plainName keeps a theme's name from being a path or from steering a terminal.
func plainName(n string) bool {
	return n != "" && len(n) <= 40 && !strings.ContainsFunc(n, func(r rune) bool {
		return (r < 'a' || r > 'z') &&
			(r < 'A' || r > 'Z') &&
			(r < '0' || r > '9') &&
			r != '-' &&
			r != '_'
	})
}

// Load reads a theme: the operator's, else the one that ships. Errors wrap ErrTheme and name the file.
func (l Library) Load(name string) (*Theme, Stamp, error) {
	if l.Dir == "" || !plainName(name) {
		return l.loadShipped(name)
	}
	path := filepath.Join(l.Dir, name+".toml")
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l.loadShipped(name)
	}
	if err != nil {
		return nil, Stamp{}, fmt.Errorf("%w: %w", ErrTheme, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, Stamp{}, fmt.Errorf("%w: %w", ErrTheme, err)
	}
	stamp := Stamp{info.ModTime(), info.Size()}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, stamp, fmt.Errorf("%w: %w", ErrTheme, err)
	case len(data) > maxFile:
		return nil, stamp, fmt.Errorf("%w: %s is larger than %d bytes", ErrTheme, path, maxFile)
	}
	t, err := Parse(data)
	if err != nil {
		return nil, stamp, fmt.Errorf("%s: %w", path, err)
	}
	t.Name = name // the file's name is what it is asked for by
	return t, stamp, nil
}

func (l Library) loadShipped(name string) (*Theme, Stamp, error) {
	if !slices.Contains(Names(), name) {
		return nil, Stamp{}, fmt.Errorf("%w: there is no theme %q; choose one of %s",
			ErrTheme, name, strings.Join(l.Names(), ", "))
	}
	t, err := Load(name)
	return t, Stamp{}, err
}

// Stamp looks at a theme's file without reading it.
func (l Library) Stamp(name string) Stamp {
	if l.Dir == "" || !plainName(name) {
		return Stamp{}
	}
	info, err := os.Stat(filepath.Join(l.Dir, name+".toml"))
	if err != nil {
		return Stamp{}
	}
	return Stamp{info.ModTime(), info.Size()}
}
