package tui

import (
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// The screen's fixed rows.
const (
	headerRows = 2
	barRows    = 1
	footerRows = 2
)

// Below this size a summary in words takes the screen's place.
const (
	minWidth  = 60
	minHeight = 16
)

const feedLive = feed.Live

// compose draws the whole screen.
func (m *Model) compose() (string, *tea.Cursor) {
	c := widget.NewCanvas(m.w, m.h, m.pal, m.opts.ASCII)
	if m.w < minWidth || m.h < minHeight {
		m.summary(c)
		return c.String(), nil
	}
	m.header(c)
	body := m.body()
	m.pages[m.current].Draw(c, body, m.state)
	m.bar(c, widget.Rect{X: 0, Y: body.Y + body.H, W: m.w, H: barRows})
	cursor := m.footer(c, widget.Rect{X: 0, Y: body.Y + body.H + barRows, W: m.w, H: footerRows})
	switch {
	case m.help != nil:
		m.help.draw(c, body)
	case m.dialog != nil:
		cursor = m.drawDialog(c, body)
	}
	return c.String(), cursor
}

// header draws the two lines that never change their meaning.
func (m *Model) header(c *widget.Canvas) {
	base := m.pal.Style(themes.Header)
	c.Fill(widget.Rect{X: 0, Y: 0, W: m.w, H: headerRows}, ' ', base)
	end := m.headerRight(c, 0)
	snap := m.live.Snap()
	job := snap.GetJob()
	p := c.Pen(widget.Rect{X: 1, Y: 0, W: end - 2, H: 1})
	p.Style(base.With(themes.Bold), orDash(job.GetName()))
	if job.GetEmulated() {
		p.Style(base, " (emulated)")
	}
	p.Style(base, fmt.Sprintf("  iter %s  %d ranks  ", phrase.Iteration(job.GetIteration()), len(m.live.Ranks)))
	p.Style(base.With(themes.Bold), phrase.Ms(job.GetIterationMs()))
	if job.GetBaselineMs() > 0 {
		m.onHeader(p, slowRole(job.GetSlowdown()), " "+phrase.Percent(job.GetSlowdown())+" vs base")
	}
	m.headerSecond(c)
}

// onHeader writes a role's colour on the header's background.
func (m *Model) onHeader(p *widget.Pen, role themes.Role, s string) {
	st := m.pal.Style(role)
	if st.BG == 0 {
		st.BG = m.pal.Style(themes.Header).BG
		st.Attr |= m.pal.Style(themes.Header).Attr
	}
	p.Style(st, s)
}

func slowRole(x float64) themes.Role {
	switch {
	case x >= 0.5:
		return themes.Bad
	case x >= 0.1:
		return themes.Warn
	}
	return themes.Good
}

func orDash(s string) string {
	if s == "" {
		return "no job yet"
	}
	return s
}

// headerRight draws connection, data age and mode; it returns where it starts.
func (m *Model) headerRight(c *widget.Canvas, y int) int {
	base := m.pal.Style(themes.Header)
	mode := " " + phrase.Mode(m.live.Snap().GetPolicy()) + " "
	st := base.With(themes.Bold)
	switch p := m.live.Snap().GetPolicy(); {
	case p.GetFrozen():
		st = m.pal.Style(themes.Lost)
	case p.GetMode() == "auto":
		st = m.pal.Style(themes.Auto)
	}
	x := c.Right(m.w, y, mode, st)
	text, role := m.connection()
	st = m.pal.Style(role)
	if st.BG == 0 {
		st.BG, st.Attr = base.BG, st.Attr|base.Attr
	}
	return c.Right(x-1, y, text, st)
}

// staleAfter is the data age that is worth a warning.
const staleAfter = 5 * time.Second

func (m *Model) connection() (string, themes.Role) {
	f := m.live.Feed
	since := f.Since.UTC().Format("15:04:05Z")
	switch f.Conn {
	case feed.Connecting:
		if f.Err == "" {
			return "connecting", themes.Header
		}
		return " no engine yet since " + since + ", retrying ", themes.Urgent
	case feed.Lost:
		return " engine unreachable since " + since + ", retrying ", themes.Urgent
	case feed.Live:
	}
	if m.live.Snap().GetJob().GetState() == finished {
		return "job finished", themes.Header
	}
	age := f.Age(m.now())
	text := fmt.Sprintf("data %.1fs", age.Seconds())
	if age >= 10*time.Second {
		text = fmt.Sprintf("data %ds old", int(age.Seconds()))
	}
	if f.Slow {
		text = "slow link  " + text
	}
	if age > staleAfter {
		return text, themes.Warn
	}
	return text, themes.Header
}

func (m *Model) headerSecond(c *widget.Canvas) {
	base := m.pal.Style(themes.Header)
	snap := m.live.Snap()
	right := m.now().UTC().Format("15:04:05Z") + " "
	if snap.Actor != "" && m.w >= 100 {
		right = fmt.Sprintf("%s (%s)  %s", snap.Actor, orNone(snap.Role), right)
	} else if snap.Actor != "" {
		right = widget.Cut(snap.Actor, 12) + "  " + right
	}
	end := c.Right(m.w, 1, right, base)
	p := c.Pen(widget.Rect{X: 1, Y: 1, W: end - 2, H: 1})
	inc := m.live.Incident()
	switch {
	case inc == nil:
		p.Style(base, "no incident  "+snap.GetJob().GetState())
	case page.Open(inc):
		m.onHeader(p, themes.Bad, inc.Id)
		p.Style(base, fmt.Sprintf(" %s since %s  %s", inc.State, phrase.Iteration(inc.OnsetIteration), phrase.Verdict(inc.Verdict)))
	default:
		m.onHeader(p, themes.Good, inc.Id)
		p.Style(base, " "+inc.State+"  "+phrase.Verdict(inc.Verdict))
	}
}

// bar draws what waits for a decision, else what is being done.
func (m *Model) bar(c *widget.Canvas, r widget.Rect) {
	prop := m.live.Proposal()
	if prop == nil {
		m.quietBar(c, r)
		return
	}
	base := m.pal.Style(themes.Urgent)
	c.Fill(r, ' ', base)
	keys := m.decisionKeys()
	end := c.Right(r.X+r.W-1, r.Y, keys, base)
	p := c.Pen(widget.Rect{X: 1, Y: r.Y, W: end - 3, H: 1})
	p.Style(base, fmt.Sprintf("%s PROPOSED  %s → %s (%s)", prop.Rung, phrase.Ms(prop.BeforeMs), phrase.Ms(prop.PredictedMs),
		phrase.Change(prop.BeforeMs, prop.PredictedMs)))
	if plan := "  " + phrase.Plan(prop.Previous, prop.MicroBatches, p.Left()-2); p.Fits(plan) {
		p.Style(base, plan)
	}
}

// decisionKeys names the keys, or why they don't work.
func (m *Model) decisionKeys() string {
	if !m.may("approver") {
		return "needs role approver  i why"
	}
	if m.live.Feed.Conn != feed.Live {
		return "engine unreachable"
	}
	return "a approve  v veto  i why"
}

func (m *Model) quietBar(c *widget.Canvas, r widget.Rect) {
	p := c.Pen(r).Space(1)
	inc := m.live.Incident()
	switch {
	case m.live.Snap().GetPolicy().GetFrozen():
		p.Put(themes.Lost, " FROZEN ").Put(themes.Text, " nothing new is dispatched; F unfreezes. ")
	case m.live.Feed.Conn == feed.Lost:
		p.Put(themes.Warn, "the last picture is shown: "+m.live.Feed.Err+"  ")
	}
	if inc == nil {
		p.Put(themes.Good, "● ").Put(themes.Text, orState(m.live.Snap().GetJob().GetState()))
		return
	}
	role := themes.Accent
	if page.Open(inc) {
		role = themes.Warn
	}
	p.Put(role, inc.Id+" ").Put(themes.Text, page.Doing(m.live))
}

func orState(s string) string {
	if s == "" {
		return "waiting for the first snapshot"
	}
	return s
}

// footer draws the pages, and the keys that work here; a prompt or a message
// takes the place of the keys.
func (m *Model) footer(c *widget.Canvas, r widget.Rect) *tea.Cursor {
	row, rest := r.Rows(1)
	p := c.Pen(row).Space(1)
	for _, s := range key.Pages {
		b := pageKey(s)
		if s == m.current {
			p.Put(themes.Selected, " "+b.Show+" "+b.Short+" ").Space(1)
			continue
		}
		p.Put(themes.Key, b.Show).Put(themes.Dim, " "+b.Short).Space(2)
	}
	if !m.pausedAt.IsZero() {
		c.Right(r.X+r.W-1, row.Y, fmt.Sprintf(" PAUSED, live is %ds ahead ", int(m.now().Sub(m.pausedAt).Seconds())), m.pal.Style(themes.Urgent))
	}
	return m.lastRow(c, rest)
}

func pageKey(s key.Scope) key.Binding {
	for _, b := range key.In(key.Global) {
		if shows[b.Action] == s && b.Action != key.Why {
			return b
		}
	}
	return key.Binding{}
}

func (m *Model) lastRow(c *widget.Canvas, r widget.Rect) *tea.Cursor {
	if m.prompt != nil {
		p := c.Pen(r).Space(1).Put(themes.Key, m.prompt.sign).Put(themes.Text, m.prompt.text)
		at := tea.NewCursor(p.X, r.Y)
		p.Space(3)
		footerKeys(p, key.Prompt)
		return at
	}
	if m.toast.text != "" && m.now().Before(m.toast.till) {
		c.Pen(r).Space(1).Put(m.toast.role, m.toast.text)
		return nil
	}
	p := c.Pen(r).Space(1)
	switch {
	case m.help != nil:
		footerKeys(p, key.Help)
	case m.dialog != nil:
		footerKeys(p, key.Dialog)
	default:
		footerKeys(p, m.current, key.Global)
	}
	return nil
}

func footerKeys(p *widget.Pen, scopes ...key.Scope) {
	for _, b := range key.Footer(scopes...) {
		if !p.Fits(b.Show + " " + b.Short) {
			return
		}
		p.Put(themes.Key, b.Show).Put(themes.Dim, " "+b.Short).Space(2)
	}
}

// summary says the essentials where the screen is too small to draw.
func (m *Model) summary(c *widget.Canvas) {
	job := m.live.Snap().GetJob()
	conn, _ := m.connection()
	lines := []string{
		fmt.Sprintf("%s iter %s", orDash(job.GetName()), phrase.Iteration(job.GetIteration())),
		fmt.Sprintf("%s %s vs base", phrase.Ms(job.GetIterationMs()), phrase.Percent(job.GetSlowdown())),
		conn + " " + phrase.Mode(m.live.Snap().GetPolicy()),
	}
	if inc := m.live.Incident(); inc != nil {
		lines = append(lines, inc.Id+" "+inc.State+": "+phrase.Verdict(inc.Verdict))
	}
	if p := m.live.Proposal(); p != nil {
		lines = append(lines, p.Rung+" PROPOSED "+phrase.Change(p.BeforeMs, p.PredictedMs))
	}
	lines = append(lines, fmt.Sprintf("enlarge to %d×%d; q quits", minWidth, minHeight))
	y := 0
	for _, l := range lines {
		y += c.Paragraph(widget.Rect{X: 0, Y: y, W: m.w, H: m.h - y}, l, m.pal.Style(themes.Text))
	}
}
