package tui

import (
	tea "charm.land/bubbletea/v2"
	uv "github.com/charmbracelet/ultraviolet"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/alert"
)

// ears is what the console knows of how it may make itself heard.
type ears struct {
	core    alert.Core
	channel alert.Channel
	away    bool // the terminal has said that nobody looks
	muted   bool
	silent  bool
}

// meet asks the terminal what it can do, once its environment is known.
func (m *Model) meet(env tea.EnvMsg) tea.Cmd {
	if m.ears.silent {
		return nil
	}
	m.ears.channel = alert.Choose(env.Getenv)
	if !alert.Probing(env.Getenv) {
		return nil
	}
	return tea.Raw(alert.Probe)
}

// probed takes the terminal's answer to the probe.
func (m *Model) probed(seq uv.UnknownOscEvent) {
	if alert.Answered(string(seq)) {
		m.ears.channel = alert.OSC99
	}
}

// alert makes itself heard where that is due.
func (m *Model) alert() tea.Cmd {
	out := m.ears.core.Step(m.now(), alert.Input{
		State: m.live.Feed, Focused: !m.ears.away, Muted: m.ears.muted, Silent: m.ears.silent || m.ears.channel == alert.None,
	})
	if text := alert.Encode(out, m.ears.channel); text != "" {
		return tea.Raw(text)
	}
	return nil
}

// mute switches the bell off, or on again.
func (m *Model) mute() {
	m.ears.muted = !m.ears.muted
	if m.ears.muted {
		m.say(themes.Accent, "the bell is off in this console; B or :mute brings it back")
		return
	}
	m.say(themes.Accent, "the bell is on")
}
