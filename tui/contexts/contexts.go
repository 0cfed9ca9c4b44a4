// Package contexts keeps the engines that an operator's console attaches to, by name, in one
// TOML file beside console.toml.
//
// It is strict, as package prefs is: what the file says and the console does not know, a name or
// an address that can't be one, and a file that others may write or read are refused in one
// sentence with the remedy. Writing replaces the file as a whole, readable by its owner alone.
// The file holds paths of certificates and no secrets. The package does no network I/O and owns
// no goroutines.
package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/failslow/falcon/tui/clean"
	"github.com/failslow/falcon/tui/prefs"
)

// ErrContexts is wrapped by everything that is wrong with contexts or their file.
var ErrContexts = errors.New("contexts")

// Env names the file, if it is not beside console.toml.
const Env = "FALCON_CONTEXTS"

// Bounds of a file.
const (
	maxFile = 256 << 10
	maxName = 40
	most    = 256
)

// Context is an engine that a console can attach to.
type Context struct {
	Name    string `toml:"-"`
	Address string `toml:"address"`        // a socket's path, or HOST:PORT
	CA      string `toml:"ca,omitempty"`   // the authority's certificate, for HOST:PORT
	Cert    string `toml:"cert,omitempty"` // the operator's own
	Key     string `toml:"key,omitempty"`
}

// File is what a file says.
type File struct {
	Current  string // used where a command names no engine; "" = none
	Contexts []Context
}

// document is the file as TOML.
type document struct {
	Current  string             `toml:"current,omitempty"`
	Contexts map[string]Context `toml:"contexts"`
}

// Path is where the file is: $FALCON_CONTEXTS, else contexts.toml beside console.toml; "" where
// there is no home.
func Path(env func(string) string) string {
	if p := env(Env); p != "" {
		return p
	}
	beside := func(name string) string {
		if name == prefs.Env { // says where another file is
			return ""
		}
		return env(name)
	}
	path, _ := prefs.Path(beside)
	if path == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(path), "contexts.toml")
}

// Load reads a file; one that is missing says nothing. Errors wrap ErrContexts and name the file.
func Load(path string) (File, error) {
	if path == "" {
		return File{}, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return File{}, nil
	}
	if err != nil {
		return File{}, fmt.Errorf("%w: %w", ErrContexts, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return File{}, fmt.Errorf("%w: %w", ErrContexts, err)
	}
	if m := info.Mode().Perm(); m&0o077 != 0 {
		return File{}, fmt.Errorf(
			"%w: others may use %s (mode %04o), which says where decisions are sent: chmod 600 %s",
			ErrContexts, path, m, path,
		)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return File{}, fmt.Errorf("%w: %w", ErrContexts, err)
	}
	out, err := Parse(text)
	if err != nil {
		return File{}, fmt.Errorf("%w: %s: %w", ErrContexts, path, err)
	}
	return out, nil
}

// Parse reads a TOML document; contexts come in the order of their names.
func Parse(text []byte) (File, error) {
	if len(text) > maxFile {
		return File{}, fmt.Errorf("it is larger than %d KiB", maxFile>>10)
	}
	var d document
	md, err := toml.Decode(string(text), &d)
	if err != nil {
		return File{}, singleLine(err)
	}
	if unknown := md.Undecoded(); len(unknown) > 0 {
		return File{}, fmt.Errorf(
			"there is no setting %q; there are current, and address, ca, cert and key under [contexts.NAME]",
			clean.String(unknown[0].String()),
		)
	}
	if len(d.Contexts) > most {
		return File{}, fmt.Errorf("it has %d contexts, and %d are the most", len(d.Contexts), most)
	}
	out := File{Current: d.Current}
	for _, name := range slices.Sorted(maps.Keys(d.Contexts)) {
		c := d.Contexts[name]
		c.Name = name
		if err := c.Check(); err != nil {
			return File{}, err
		}
		out.Contexts = append(out.Contexts, c)
	}
	if _, known := out.Find(out.Current); out.Current != "" && !known {
		return File{}, fmt.Errorf("current is %q, which is no context of it; %s",
			clean.String(out.Current), out.known())
	}
	return out, nil
}

// singleLine is an error of the library on one line.
func singleLine(err error) error {
	var p toml.ParseError
	if errors.As(err, &p) {
		return fmt.Errorf("line %d: %s", p.Position.Line, clean.String(p.Message))
	}
	return errors.New(clean.String(err.Error()))
}

// Check returns what is wrong with a context, or nil.
func (c Context) Check() error {
	switch {
	case !plainName(c.Name):
		return fmt.Errorf(
			"%q is no name of a context; use at most %d letters, digits, dots, dashes and underscores",
			clean.String(c.Name), maxName,
		)
	case c.Address == "":
		return fmt.Errorf("context %s has no address; set a socket's path, or HOST:PORT", c.Name)
	case strings.ContainsFunc(c.Address, func(r rune) bool {
		return r <= ' ' || r == 0x7f
	}):
		return fmt.Errorf("context %s: %q is no address; write a socket's path, or HOST:PORT",
			c.Name, clean.String(c.Address))
	}
	files := 0
	for _, name := range []string{c.CA, c.Cert, c.Key} {
		if name != "" {
			files++
		}
	}
	switch {
	case c.IsSocket() && files > 0:
		return fmt.Errorf("context %s is a socket, which needs no certificates; remove ca, cert and key",
			c.Name)
	case c.IsSocket():
		return nil
	case files < 3:
		return fmt.Errorf("context %s is reached over TLS: set ca, cert and key", c.Name)
	}
	host, port, err := net.SplitHostPort(c.Address)
	if err != nil || host == "" || port == "" {
		return fmt.Errorf("context %s: %q is no address; write HOST:PORT", c.Name, c.Address)
	}
	return nil
}

// IsSocket reports whether the address is a socket's path.
func (c Context) IsSocket() bool {
	return strings.HasPrefix(c.Address, "unix:") ||
		strings.ContainsRune(c.Address, '/') ||
		!strings.ContainsRune(c.Address, ':')
}

func plainName(s string) bool {
	return s != "" &&
		len(s) <= maxName &&
		s[0] != '.' &&
		s[0] != '-' &&
		!strings.ContainsFunc(s, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' ||
				r >= 'A' && r <= 'Z' ||
				r >= '0' && r <= '9' ||
				strings.ContainsRune("._-", r))
		})
}

// Find is the context of a name.
func (f File) Find(name string) (Context, bool) {
	i := slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if i < 0 {
		return Context{}, false
	}
	return f.Contexts[i], true
}

// Choose is the contexts of some names, in their order.
func (f File) Choose(names []string) ([]Context, error) {
	var out []Context
	for _, name := range names {
		c, known := f.Find(name)
		if !known {
			return nil, fmt.Errorf("%w: there is no context %q; %s",
				ErrContexts, clean.String(name), f.known())
		}
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out, nil
}

// known names the contexts that there are, for who has mistyped one.
func (f File) known() string {
	if len(f.Contexts) == 0 {
		return "add one with falcon context add NAME ADDRESS"
	}
	return "there are " + strings.Join(f.Names(), ", ")
}

// Names are the names of the contexts.
func (f File) Names() []string {
	out := make([]string, len(f.Contexts))
	for i, c := range f.Contexts {
		out[i] = c.Name
	}
	return out
}

// Add is the file with one context more; one of the same name is replaced only where that is
// wanted.
func (f File) Add(c Context, replace bool) (File, error) {
	if err := c.Check(); err != nil {
		return f, fmt.Errorf("%w: %w", ErrContexts, err)
	}
	out := File{f.Current, slices.Clone(f.Contexts)}
	i := slices.IndexFunc(out.Contexts, func(x Context) bool {
		return x.Name == c.Name
	})
	switch {
	case i < 0 && len(out.Contexts) == most:
		return f, fmt.Errorf("%w: there are %d, and that is the most", ErrContexts, most)
	case i < 0:
		out.Contexts = append(out.Contexts, c)
	case !replace && out.Contexts[i] != c:
		return f, fmt.Errorf("%w: %s is there already, at %s; --replace takes its place",
			ErrContexts, c.Name, out.Contexts[i].Address)
	default:
		out.Contexts[i] = c
	}
	slices.SortFunc(out.Contexts, func(a, b Context) int {
		return strings.Compare(a.Name, b.Name)
	})
	return out, nil
}

// Use is the file with another current context; "" for none.
func (f File) Use(name string) (File, error) {
	if _, err := f.Choose([]string{name}); name != "" && err != nil {
		return f, err
	}
	return File{name, f.Contexts}, nil
}

// Remove is the file without a context; where it was the current one there is none.
func (f File) Remove(name string) (File, error) {
	if _, err := f.Choose([]string{name}); err != nil {
		return f, err
	}
	out := File{
		f.Current,
		slices.DeleteFunc(slices.Clone(f.Contexts), func(c Context) bool { return c.Name == name }),
	}
	if out.Current == name {
		out.Current = ""
	}
	return out, nil
}

// Text is the file as TOML.
func (f File) Text() []byte {
	d := document{Current: f.Current, Contexts: map[string]Context{}}
	for _, c := range f.Contexts {
		d.Contexts[c.Name] = c
	}
	var b bytes.Buffer
	b.WriteString("# Engines that falcon's console attaches to: falcon context --help\n")
	_ = toml.NewEncoder(&b).Encode(d) // into memory, of strings alone
	return b.Bytes()
}

// Save replaces the file at path, readable by its owner alone.
func (f File) Save(path string) error {
	if path == "" {
		return fmt.Errorf("%w: there is no home to keep them in; set $%s", ErrContexts, Env)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("%w: %w", ErrContexts, err)
	}
	tmp, err := os.CreateTemp(dir, ".contexts.*") // 0600
	if err != nil {
		return fmt.Errorf("%w: %w", ErrContexts, err)
	}
	_, err = tmp.Write(f.Text())
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("%w: %w", ErrContexts, err)
	}
	return nil
}
