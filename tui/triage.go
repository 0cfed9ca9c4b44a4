package tui

import (
	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/key"
)

// sayByKey says that the incident is seen, or begins the command for what needs words.
func (m *Model) sayByKey(a key.Action) tea.Cmd {
	switch a {
	case key.Ack:
		return m.decisions.say(m.whoDecides(), decision.SayAck, nil)
	case key.Snooze:
		m.openPalette(decision.SaySnooze + " 1h ")
	case key.WriteNote:
		m.openPalette(decision.SayNote + " ")
	case key.HandOver:
		text := decision.SayHandOver + " "
		if name := decision.OnlyOther(m.work.live.Snap()); name != "" {
			text += name + " "
		}
		m.openPalette(text)
	}
	return nil
}
