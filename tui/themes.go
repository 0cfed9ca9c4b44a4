package tui

import (
	"cmp"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/clean"
)

// themeMsg is what was found of a theme: to be shown, or why not.
type themeMsg struct {
	name  string
	theme *themes.Theme // nil: unchanged, or err says why not
	stamp themes.Stamp
	err   error
	again bool // it is the one on screen, whose file has changed
}

// themePicker owns the theme on screen and the files it may come from.
type themePicker struct {
	lib      themes.Library
	fixed    bool // the operator named a theme
	theme    *themes.Theme
	stamp    themes.Stamp // of the file that theme was read from
	watching bool         // a look at that file is under way
}

func newThemePicker(lib themes.Library, name string) (themePicker, error) {
	p := themePicker{lib: lib, fixed: name != ""}
	var err error
	p.theme, p.stamp, err = lib.Load(cmp.Or(name, themes.Default))
	return p, err
}

// chooseTheme reads a theme in a command, as it may be a file, for it to be shown.
func (p *themePicker) chooseTheme(name string) tea.Cmd {
	lib := p.lib
	return func() tea.Msg {
		t, stamp, err := lib.Load(name)
		return themeMsg{
			name:  name,
			theme: t,
			stamp: stamp,
			err:   err,
		}
	}
}

// nextTheme chooses the theme after the one on screen.
func (p *themePicker) nextTheme() tea.Cmd {
	lib, now := p.lib, p.theme.Name
	return func() tea.Msg {
		names := lib.Names()
		name := names[(slices.Index(names, now)+1)%len(names)]
		t, stamp, err := lib.Load(name)
		return themeMsg{
			name:  name,
			theme: t,
			stamp: stamp,
			err:   err,
		}
	}
}

// background chooses by the terminal's background, where no theme was named.
func (p *themePicker) background(dark bool) tea.Cmd {
	if p.fixed || dark || p.theme.Name != themes.Default {
		return nil
	}
	return p.chooseTheme("light")
}

// watchFile looks whether the file of the theme on screen has changed: one stat a
// tick, and nothing where the theme ships.
func (p *themePicker) watchFile() tea.Cmd {
	if p.watching || p.lib.Dir == "" {
		return nil
	}
	p.watching = true
	lib, name, was := p.lib, p.theme.Name, p.stamp
	return func() tea.Msg {
		msg := themeMsg{name: name, stamp: lib.Stamp(name), again: true}
		if msg.stamp != was {
			msg.theme, msg.stamp, msg.err = lib.Load(name)
		}
		return msg
	}
}

// takeTheme takes a theme that was read over, and returns what to say. A broken file
// keeps the old theme, and is reported once a change.
func (p *themePicker) takeTheme(msg themeMsg) (role themes.Role, text string) {
	if msg.again {
		p.watching = false
		if msg.name != p.theme.Name {
			return "", "" // another was chosen meanwhile
		}
	}
	switch {
	case msg.err != nil:
		if msg.again {
			p.stamp = msg.stamp
		}
		return themes.Warn, "the theme stays as it is: " + clean.String(msg.err.Error())
	case msg.theme != nil:
		p.theme, p.stamp = msg.theme, msg.stamp
		return themes.Accent, "theme " + msg.theme.Name
	}
	return "", ""
}
