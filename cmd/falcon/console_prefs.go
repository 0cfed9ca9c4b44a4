package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/tui/prefs"
)

// loadPrefs reads what the operator wants: of a file that a flag named, else
// of the usual place.
func loadPrefs(flag string) (prefs.Prefs, error) {
	path, named := prefs.Path(os.Getenv)
	if flag != "" {
		path, named = flag, true
	}
	p, err := prefs.Load(path, named)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return p, fmt.Errorf("%w: there is no file of preferences %s; check --prefs and $%s",
			errUsage, path, prefs.Env)
	case err != nil:
		return p, fmt.Errorf("%w: %w", errUsage, err)
	}
	return p, nil
}

// usePrefs adds the operator's preferences to what the flags say; flags win.
func (o *consoleOptions) usePrefs() error {
	p, err := loadPrefs(o.PrefsFile)
	if err != nil {
		return err
	}
	o.Prefs = p
	if o.Reader, err = o.reader.wanted(os.Getenv, p.Reader); err != nil {
		return err
	}
	o.Plain = o.Plain || o.Reader
	o.ASCII = o.ASCII || p.ASCII
	if o.Theme == "" {
		o.Theme = p.Theme
	}
	return nil
}

// consoleKeys prints the table of keys as the operator has it.
func consoleKeys() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:     "keys",
		Short:   "Print the console's keys as Markdown, as your preferences have them",
		Example: "  falcon console keys\n  falcon console keys --prefs console.toml",
		Args:    takesNothing,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := loadPrefs(file)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(c.OutOrStdout(), p.Keys.Markdown())
			return err
		},
	}
	prefsFlag(c, &file)
	return c
}

func prefsFlag(c *cobra.Command, file *string) {
	c.Flags().StringVar(
		file,
		"prefs",
		"",
		"file of preferences: theme, mouse, bell, keys (default: $"+prefs.Env+
			", else ~/.config/falcon/console.toml)",
	)
}

// hintMark is a file that is there once the hint of the first start was seen;
// "" where there is no place to remember it.
func hintMark() string {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "falcon", "console-hint-seen")
}

// firstStartHint reports whether to show the hint of the first start, and returns how
// to remember that it was seen. If that fails, the hint is shown again next time.
func (o *consoleOptions) firstStartHint() (show bool, seen func()) {
	mark := hintMark()
	if !o.Prefs.Hints || mark == "" {
		return false, nil
	}
	if _, err := os.Stat(mark); err == nil {
		return false, nil
	}
	return true, func() {
		if os.MkdirAll(filepath.Dir(mark), 0o700) == nil {
			_ = os.WriteFile(mark, nil, 0o600)
		}
	}
}
