package overview

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/validate"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// Bounds from which on something is worth a line, and of the names in one.
const (
	oldData   = 5 * time.Second // data age
	stealMost = 0.05            // share of a node's CPU that its host takes away
	namesMost = 3
)

// concernLines lists what to watch beside the incident, worst first.
func concernLines(s *page.State) []page.Line {
	var out []page.Line
	add := func(role themes.Role, text string) {
		if text != "" {
			out = append(out, page.Line{Text: text, Role: role})
		}
	}
	if v := s.Snap().GetValidation(); page.Underway(v) {
		text := v.Id + " is " + v.State
		if held := validate.Held(s, v); held != "" {
			text += ": " + held
		}
		add(themes.Warn, text)
	}
	if age := s.Feed.Age(s.Now); age > oldData && !page.Idle(s) && !s.Over() {
		add(themes.Bad, "data is "+phrase.Seconds(age)+" old: what is shown may have changed")
	}
	add(themes.Warn, s.Snap().GetJob().GetAlarm())
	for _, f := range s.Snap().GetJob().GetSilicon().GetFound() {
		add(themes.Warn, f.GetText())
	}
	add(themes.Warn, layoutDoubt(s))
	add(themes.Bad, lostAgents(s))
	if list := s.Snap().GetFenced(); len(list) > 0 {
		add(
			themes.Warn,
			"fenced until it is lifted, by "+
				s.Keys.Name(key.Command, key.Global)+
				"lift NODE WHY: "+
				phrase.Few(list, namesMost),
		)
	}
	gone := s.Snap().GetJob().GetNoSpare()
	if gone != "" && !page.Ended(s) {
		add(themes.Warn, "no spare is left ("+gone+"): a node that is lost now can't be replaced")
	}
	add(themes.Warn, otherConsole(s))
	add(themes.Warn, otherAgents(s))
	add(themes.Warn, stealText(s))
	for _, x := range s.Snap().GetRecurring()[:min(namesMost, len(s.Snap().GetRecurring()))] {
		add(themes.Warn, Recurs(x, s))
	}
	for _, b := range s.Snap().GetBars()[:min(namesMost, len(s.Snap().GetBars()))] {
		add(themes.Dim, b.GetName()+" is barred "+page.BarWords(s, b))
	}
	return out
}

func lostAgents(s *page.State) string {
	var names []string
	for _, n := range s.Snap().GetNodes() {
		if !n.GetConnected() {
			text := fmt.Sprintf("%s ago",
				phrase.Seconds(time.Duration(n.GetAgeMs())*time.Millisecond))
			v := s.Snap().GetRecovery()
			if slices.Contains(v.GetFenced(), n.GetNode()) {
				text += ", fenced by " + v.GetId()
			}
			names = append(names, fmt.Sprintf("%s (%s)", n.GetNode(), text))
		}
	}
	if len(names) == 0 || s.Over() {
		return ""
	}
	return "no agent on " + phrase.Few(names, namesMost)
}

func stealText(s *page.State) string {
	var names []string
	for _, n := range s.Snap().GetNodes() {
		if n.GetStealShare() >= stealMost {
			names = append(names, fmt.Sprintf("%s %.0f%%", n.GetNode(), 100*n.GetStealShare()))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "CPU taken away by the host: " + phrase.Few(names, namesMost)
}

// Recurs describes a device or link that several incidents named.
func Recurs(x *falconv1.Recurrence, s *page.State) string {
	name := cmp.Or(x.GetDevice(), "link "+x.GetLink())
	text := fmt.Sprintf("%s was named by %d incidents", name, x.GetTimes())
	if x.GetJobs() > 1 {
		text += fmt.Sprintf(" in %d jobs", x.GetJobs())
	}
	ago := s.EngineNow().Sub(time.Unix(0, x.GetLastUnixNs()))
	if x.GetLastUnixNs() > 0 && ago > time.Minute {
		text += ", last " + page.Ago(ago)
	}
	return text
}

// agentsText counts who is there.
func agentsText(s *page.State) string {
	connected := 0
	for _, n := range s.Snap().GetNodes() {
		if n.GetConnected() {
			connected++
		}
	}
	return fmt.Sprintf("%d of %d agents connected", connected, len(s.Snap().GetNodes()))
}

// watchLines are the concerns wrapped to a width.
func watchLines(s *page.State, w int) []page.Line {
	var out []page.Line
	for _, x := range concernLines(s) {
		for n, line := range widget.Wrap(x.Text, max(1, w-2)) {
			sign := "▲ "
			if n > 0 {
				sign = "  "
			}
			out = append(out, page.Line{Text: sign + line, Role: x.Role})
		}
	}
	return out
}

// watchRows is what the concerns take with their title, at least one row.
func watchRows(s *page.State, w int) int {
	return 1 + max(1, len(watchLines(s, w)))
}

// drawWatch draws the concerns, or that there are none.
func drawWatch(c *widget.Canvas, r widget.Rect, s *page.State) {
	body := c.Rule(r, "WATCH", agentsText(s))
	list := watchLines(s, body.W)
	if len(list) > 0 {
		page.DrawLines(c, body, list)
		return
	}
	if why := unwatched(s); why != "" {
		c.Pen(body).Put(themes.Dim, why)
		return
	}
	c.Pen(body).Put(themes.Good, "✓ ").Put(themes.Text, "nothing else: agents, hosts and data are well")
}

// unwatched is why no concern means nothing, or "".
func unwatched(s *page.State) string {
	switch {
	case s.Over():
		return "the job has ended: nothing is watched any more"
	case len(s.Snap().GetNodes()) == 0:
		return "no agent is attached: nothing is watched"
	}
	return ""
}
