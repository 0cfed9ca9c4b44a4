package tui

import (
	"fmt"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/key"
)

// hint is the one line of the first start.
type hint struct {
	on   bool
	seen func() // called once, in a command, when it has been seen; may be nil
}

// hintText is the hint in the words of the key table.
func (h *hint) hintText(keys *key.Map, mouse bool) string {
	name := func(a key.Action) string { return keys.Name(a, key.Global) }
	text := fmt.Sprintf("New here? %s shows the keys, %s finds anything, %s-%s pages",
		name(key.ShowHelp), name(key.Command), name(key.ShowOverview), name(key.ShowEvents))
	if mouse {
		text += ", " + name(key.Mouse) + " frees the mouse"
	}
	return text + "."
}

// markSeen removes the hint; the caller remembers that outside the event loop.
func (h *hint) markSeen() tea.Cmd {
	if !h.on {
		return nil
	}
	h.on = false
	if h.seen == nil {
		return nil
	}
	return func() tea.Msg {
		h.seen()
		return nil
	}
}
