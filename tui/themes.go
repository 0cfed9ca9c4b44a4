package tui

import (
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

// setTheme reads a theme in a command, as it may be a file, and shows it.
func (m *Model) setTheme(name string) tea.Cmd {
	lib := m.opts.Themes
	return func() tea.Msg {
		t, stamp, err := lib.Load(name)
		return themeMsg{name: name, theme: t, stamp: stamp, err: err}
	}
}

func (m *Model) nextTheme() tea.Cmd {
	lib, now := m.opts.Themes, m.theme.Name
	return func() tea.Msg {
		names := lib.Names()
		name := names[(slices.Index(names, now)+1)%len(names)]
		t, stamp, err := lib.Load(name)
		return themeMsg{name: name, theme: t, stamp: stamp, err: err}
	}
}

// watchTheme looks whether the file of the theme on screen has changed: one
// stat a tick, and nothing where the theme ships.
func (m *Model) watchTheme() tea.Cmd {
	if m.watching || m.opts.Themes.Dir == "" {
		return nil
	}
	m.watching = true
	lib, name, was := m.opts.Themes, m.theme.Name, m.stamp
	return func() tea.Msg {
		msg := themeMsg{name: name, stamp: lib.Stamp(name), again: true}
		if msg.stamp != was {
			msg.theme, msg.stamp, msg.err = lib.Load(name)
		}
		return msg
	}
}

// themed shows a theme that was read. A broken file keeps the old one, and is
// told once a change.
func (m *Model) themed(msg themeMsg) {
	if msg.again {
		m.watching = false
		if msg.name != m.theme.Name {
			return // another was chosen meanwhile
		}
	}
	switch {
	case msg.err != nil:
		if msg.again {
			m.stamp = msg.stamp
		}
		m.say(themes.Warn, "the theme stays as it is: "+clean.String(msg.err.Error()))
	case msg.theme != nil:
		m.theme, m.stamp, m.dirty = msg.theme, msg.stamp, true
		m.skin.pal = msg.theme.Palette(m.skin.pal.Profile)
		m.say(themes.Accent, "theme "+msg.theme.Name)
	}
}
