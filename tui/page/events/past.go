package events

import (
	"fmt"
	"slices"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/report"
	"github.com/failslow/falcon/tui/widget"
)

// past is the history of incidents, in the place of the events while it is shown.
type past struct {
	shown  bool
	cursor string // incident under the cursor, "" = the newest
}

// WantsHistory reports whether the history is on screen.
func (p *Page) WantsHistory() bool { return p.past.shown }

func (h *past) index(list []*falconv1.PastIncident) int {
	return max(0, slices.IndexFunc(list, func(v *falconv1.PastIncident) bool {
		return v.GetIncident() == h.cursor
	}))
}

// act moves the cursor, or opens the incident under it.
func (h *past) act(a key.Action, s *page.State, rows int) key.Scope {
	list, _ := chosenIncidents(s, allIncidents(s))
	if len(list) == 0 {
		return ""
	}
	at := h.index(list)
	switch a {
	case key.Up:
		at--
	case key.Down:
		at++
	case key.PageUp:
		at -= max(1, rows)
	case key.PageDown:
		at += max(1, rows)
	case key.First:
		at = len(list) - 1
	case key.Last:
		at = 0
	case key.Open:
		return s.Go(page.Target{Page: key.Ladder, ID: list[at].GetIncident()})
	default:
		return ""
	}
	h.cursor = list[max(0, min(at, len(list)-1))].GetIncident()
	return ""
}

// Rows and widths of the history.
const (
	pastWide    = 100 // from here on causes and culprits stand side by side
	pastTopRows = 8   // of causes and culprits, with their titles
)

// pastRects parts the page: causes, culprits and the list.
func pastRects(r widget.Rect) (causes, culprits, list widget.Rect) {
	rows := min(pastTopRows, r.H/2)
	if r.H >= 30 {
		rows = pastTopRows + 4
	}
	if r.W < pastWide {
		rows = min(rows, 2+r.H/4)
		causes, r = r.Rows(rows)
		culprits, list = r.Rows(rows)
		return causes, culprits, list
	}
	top, list := r.Rows(rows)
	causes, culprits = top.Columns(top.W / 2)
	causes.W--
	return causes, culprits, list
}

func (h *past) draw(c *widget.Canvas, r widget.Rect, s *page.State) {
	if s.Feed.History == nil {
		body := c.Rule(r, "HISTORY", "")
		text := "no history is here yet: it is asked for every 10 s, and a recording holds none"
		if s.Feed.HistoryErr != "" {
			text = "there is no history: " + s.Feed.HistoryErr
		}
		page.Empty(c, body, text)
		return
	}
	causes, culprits, list := pastRects(r)
	drawCauses(c, causes, s)
	drawCulprits(c, culprits, s)
	h.drawList(c, list, s)
}

// panes are its parts, once there is a history.
func (h *past) panes(s *page.State) []page.Pane {
	if s.Feed.History == nil {
		return nil
	}
	return []page.Pane{
		{Name: "root causes", Draw: drawCauses},
		{Name: "named again", Draw: drawCulprits},
		{Name: "history", Draw: h.drawList},
	}
}

// drawCauses draws root causes by incident, then how long incidents lasted.
func drawCauses(c *widget.Canvas, r widget.Rect, s *page.State) {
	h := report.HistoryOf(s.Feed.History)
	body := c.Rule(r, "ROOT CAUSES", phrase.Plural(h.Incidents, "incident")+" over")
	if len(h.Causes) == 0 && len(h.FailStops) == 0 {
		page.Empty(c, body, "no incident is over yet")
		return
	}
	row, body := body.Rows(1)
	c.Pen(row).Putf(themes.Dim, "%-20s %5s %8s %9s %9s", "", "times", "share", "lasted", "lost")
	spreads := 2
	if body.H < 5 {
		spreads = min(1, body.H)
	}
	table, foot := body.Rows(body.H - spreads)
	for _, x := range h.Causes[:min(len(h.Causes), table.H)] {
		row, table = table.Rows(1)
		c.Pen(row).
			Putf(themes.Text, "%-20s ", widget.Cut(phrase.Cause(x.Cause), 20)).
			Putf(themes.Title, "%5d ", x.Incidents).
			Putf(themes.Text, "%8s %9s %9s",
				report.ShareText(x.Share), report.SpanText(x.MeanS), report.SpanText(x.LostS))
	}
	for _, x := range h.FailStops[:min(len(h.FailStops), table.H)] {
		row, table = table.Rows(1)
		c.Pen(row).
			Putf(themes.Text, "%-20s ", widget.Cut(report.FaultText(x.Kind), 20)).
			Putf(themes.Title, "%5d ", x.Faults).
			Putf(themes.Text, "%8s %9s", report.ShareText(x.Share), x.DownText())
	}
	if len(h.Causes) > 0 && foot.H > 0 {
		row, foot = foot.Rows(1)
		c.Pen(row).Put(themes.Dim, "lasted   ").Put(themes.Text, spreadText(h.DurationsS, report.SpanText))
		row, _ = foot.Rows(1)
		c.Pen(row).Put(themes.Dim, "slowdown ").Put(themes.Text, spreadText(h.Slowdowns, report.ShareText))
	}
}

// spreadText is a distribution in three quantiles.
func spreadText(d report.Spread, text func(float64) string) string {
	if d.N == 0 {
		return "not known"
	}
	return fmt.Sprintf("half to %s, 90 %% to %s, at most %s",
		text(d.At(0.5)), text(d.At(0.9)), text(d.At(1)))
}

// drawCulprits draws what was named, highest score first.
func drawCulprits(c *widget.Canvas, r widget.Rect, s *page.State) {
	list := s.Feed.History.GetCulprits()
	half := time.Duration(s.Feed.History.GetHalfLifeNs()).Hours() / 24
	body := c.Rule(r, "NAMED AGAIN", fmt.Sprintf("score halves every %.3g days", half))
	if len(list) == 0 {
		page.Empty(c, body, "no GPU, link or port was named")
		return
	}
	row, body := body.Rows(1)
	c.Pen(row).Putf(themes.Dim, "%-16s %6s %5s  %s", "", "score", "times", "newest")
	for _, x := range list[:min(len(list), body.H)] {
		row, body = body.Rows(1)
		role := themes.Text
		if x.GetTimes() > 1 {
			role = themes.Warn
		}
		c.Pen(row).
			Putf(role, "%-16s ", widget.Cut(page.CulpritName(x), 16)).
			Putf(themes.Title, "%6.2f ", x.GetScore()).
			Putf(themes.Text, "%5d  ", x.GetTimes()).
			Put(themes.Dim, s.CulpritAgo(x))
	}
}

func (h *past) drawList(c *widget.Canvas, r widget.Rect, s *page.State) {
	all := allIncidents(s)
	list, err := chosenIncidents(s, all)
	right := fmt.Sprintf("newest first, %s; %s opens, %s shows events",
		zoneName(s), s.Key(key.Events, key.Open), s.Key(key.Events, key.History))
	if s.Filter != "" {
		right = fmt.Sprintf("%s: %d of %d", s.Filter, len(list), len(all))
	}
	if err != nil {
		right = err.Error()
	}
	body := c.Rule(r, "INCIDENTS", right)
	for _, l := range aboutDevice(s, body.W) {
		var row widget.Rect
		row, body = body.Rows(1)
		c.Pen(row).Put(l.Role, l.Text)
	}
	if len(list) == 0 {
		text := "no incident so far; each is listed here from its onset on"
		if len(all) > 0 {
			text = "no incident is chosen by this filter; " + s.Key(key.Events, key.Back) + " drops it"
		}
		page.Empty(c, body, text)
		return
	}
	at := h.index(list)
	first := max(0, min(at-body.H/2, len(list)-body.H))
	for i := first; i < len(list) && i-first < body.H; i++ {
		row := widget.Rect{
			X: body.X,
			Y: body.Y + i - first,
			W: body.W,
			H: 1,
		}
		drawPastIncident(c, row, s, list[i], i == at)
	}
}

func drawPastIncident(c *widget.Canvas, r widget.Rect, s *page.State, v *falconv1.PastIncident, cursor bool) {
	pen := c.Pen(r)
	dim := themes.Dim
	title := themes.Title
	text := themes.Text
	if cursor {
		c.Fill(r, ' ', c.Pal.Style(themes.Selected))
		pen = c.SelectedPen(r)
		dim = themes.Selected
		title = themes.Selected
		text = themes.Selected
	}
	x := report.PastIncident{
		HealthyMs: v.GetHealthyMs(),
		SlowMs:    v.GetSlowMs(),
		Devices:   v.GetDevices(),
		Links:     v.GetLinks(),
		NICs:      v.GetNics(),
		Unnamed:   int(v.GetUnnamed()),
	}
	pen.Putf(dim, "%s ", pastTime(s, v)).Putf(title, "%-9s", v.GetIncident())
	lasted := report.SpanText(float64(v.GetEndUnixNs()-v.GetOnsetUnixNs()) / 1e9)
	role := text
	if v.GetEndUnixNs() == 0 {
		lasted = "lasts"
		role = themes.Bad
		if cursor {
			role = themes.Selected
		}
	}
	pen.Putf(role, "%8s ", lasted).Putf(text, "%+5.0f%%  ", 100*x.Slowdown())
	if r.W >= pastWide {
		pen.Putf(text, "lost %-8s  ", report.SpanText(v.GetLostMs()/1e3))
	}
	pen.Putf(text, "%s ", phrase.Cause(v.GetCause())).Put(dim, x.WhereText())
}
