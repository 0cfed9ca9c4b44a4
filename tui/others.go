package tui

import (
	"fmt"
	"strings"
	"time"

	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// subject is what the open dialog decides on, for other operators to see; ""
// where none does.
func (d *dialog) subject() string {
	switch {
	case d == nil:
		return ""
	case d.action != nil:
		return d.action.Id
	case d.rung != nil:
		return d.inc + "/" + ladder.Name(d.rung)
	case d.ask != nil && d.ask.rec != nil:
		return d.ask.rec.Id
	case d.ask != nil:
		return d.ask.verb + " " + d.ask.node
	case d.kind == kindPolicy, d.kind == kindUnfreeze:
		return "policy"
	}
	return ""
}

// incident is the one that the open dialog is about; "" where it is about none.
func (d *dialog) incident() string {
	if d == nil {
		return ""
	}
	return d.inc
}

// reviewing names who else has the same question open, or "".
func (m *Model) reviewing(d *dialog) string {
	subject := d.subject()
	var names []string
	longest := time.Duration(0)
	for _, o := range m.live.Feed.Others() {
		if o.GetAttending() == subject && subject != "" {
			names = append(names, o.GetName())
			longest = max(longest, m.now().Sub(time.Unix(0, o.GetSinceUnixNs())))
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("%s is reviewing this too, for %s", names[0], phrase.Seconds(longest))
	}
	const most = 3
	text := strings.Join(names[:min(most, len(names))], ", ")
	if rest := len(names) - most; rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text + " are reviewing this too"
}

// companyW is the most of a name that the header shows.
const companyW = 12

// company is whose other screen is open, or how many are, for the header.
func (m *Model) company() string {
	switch others := m.live.Feed.Others(); len(others) {
	case 0:
		return ""
	case 1:
		return " +" + widget.Cut(others[0].GetName(), companyW)
	default:
		return fmt.Sprintf(" +%d", len(others))
	}
}
