package tui

import (
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
)

// noteLife is how long a passing message stays, while it is true.
const noteLife = 6 * time.Second

// noteReads is how many characters of a message are read in a second.
const noteReads = 12

// notes owns the passing message in the footer.
type notes struct {
	now   func() time.Time
	text  string
	role  themes.Role
	till  time.Time
	claim *claim // what it says of the job; nil = nothing that can change
}

// showNote shows a passing message.
func (n *notes) showNote(role themes.Role, text string) {
	life := max(noteLife, time.Duration(len(text))*time.Second/noteReads)
	n.role, n.text, n.till, n.claim = role, text, n.now().Add(life), nil
}

// showClaim shows a message that goes once the job is no longer as it says.
func (n *notes) showClaim(role themes.Role, text string, c *claim, live *page.State) {
	n.showNote(role, text)
	if c != nil {
		c.before = c.read(live)
		n.claim = c
	}
}

// clearNote takes the message away.
func (n *notes) clearNote() {
	n.text = ""
}

// checkClaim takes away a message that the picture contradicts, and reports whether it did.
func (n *notes) checkClaim(live *page.State) bool {
	if n.text == "" || n.claim == nil || n.claim.holds(live) {
		return false
	}
	n.clearNote()
	return true
}

// presentNote is the message, while it lasts.
func (n *notes) presentNote() (role themes.Role, text string, ok bool) {
	return n.role, n.text, n.text != "" && n.now().Before(n.till)
}

// claim is what an answer says of the job. The answer comes before the picture that shows
// it: until then the picture reads as before.
type claim struct {
	read   func(*page.State) string
	before string // as the picture was when the answer came
	after  string // as the answer says
	seen   bool   // the picture has shown it
}

func (c *claim) holds(live *page.State) bool {
	switch c.read(live) {
	case c.after:
		c.seen = true
		return true
	case c.before:
		return !c.seen
	}
	return false
}

func policyClaim(p *falconv1.Policy) *claim {
	return &claim{
		after: phrase.Mode(p),
		read: func(live *page.State) string {
			return phrase.Mode(live.Snap().GetPolicy())
		},
	}
}

func actionClaim(a *falconv1.Action) *claim {
	return &claim{
		after: a.GetState(),
		read: func(live *page.State) string {
			for _, x := range live.LadderOf(a.GetIncident()).GetActions() {
				if x.GetId() == a.GetId() {
					return x.GetState()
				}
			}
			return ""
		},
	}
}

func recoveryClaim(r *falconv1.Recovery) *claim {
	return &claim{
		after: r.GetState(),
		read: func(live *page.State) string {
			if now := live.Snap().GetRecovery(); now.GetId() == r.GetId() {
				return now.GetState()
			}
			return ""
		},
	}
}

func testClaim(v *falconv1.Validation) *claim {
	return &claim{
		after: v.GetState(),
		read: func(live *page.State) string {
			if now := live.Snap().GetValidation(); now.GetId() == v.GetId() {
				return now.GetState()
			}
			return ""
		},
	}
}
