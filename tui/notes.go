package tui

import (
	"time"

	"github.com/failslow/falcon/themes"
)

// noteLife is how long a passing message stays.
const noteLife = 6 * time.Second

// notes owns the passing message in the footer.
type notes struct {
	now  func() time.Time
	text string
	role themes.Role
	till time.Time
}

// showNote shows a passing message.
func (n *notes) showNote(role themes.Role, text string) {
	n.role, n.text, n.till = role, text, n.now().Add(noteLife)
}

// clearNote takes the message away.
func (n *notes) clearNote() { n.text = "" }

// presentNote is the message, while it lasts.
func (n *notes) presentNote() (role themes.Role, text string, ok bool) {
	return n.role, n.text, n.text != "" && n.now().Before(n.till)
}
