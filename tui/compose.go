package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/help"
	bubbles "charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

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

// compose draws the whole screen: the page on a canvas of cells, all around
// and over it with lipgloss.
func (m *Model) compose() (string, *tea.Cursor) {
	if m.small() {
		return m.ascii(m.summary()), nil
	}
	m.live.Now = m.clock()
	if m.pausedAt.IsZero() {
		m.state.Now = m.live.Now
	}
	body := m.body()
	if !m.keep {
		c := widget.NewCanvas(body.W, body.H, m.pal, m.opts.ASCII)
		m.drawPage(c)
		m.page, m.paged, m.targets = c.String(), m.now(), c.Targets()
	}
	m.lists = nil
	bar := m.bar()
	m.zones = m.barZones(bar, m.h-footerRows-barRows)
	tabs := m.tabs()
	last, cursor := m.lastRow(m.h - 1)
	if x, y, ok := m.targets.Focused(); ok && cursor == nil {
		cursor = m.cursorAt(x, y+headerRows)
	}
	screen := strings.Join([]string{m.header(), m.page, bar, tabs, last}, "\n")
	if m.modal() {
		m.zones = nil
		screen, cursor = m.over(screen, body, cursor)
	}
	return m.ascii(screen), cursor
}

// over draws what lies over the page.
func (m *Model) over(screen string, body widget.Rect, cursor *tea.Cursor) (string, *tea.Cursor) {
	switch {
	case m.help != nil:
		if m.help.search == nil {
			cursor = nil
		}
		return overlay(screen, m.drawHelp(body)), cursor
	case m.dialog != nil:
		box, at := m.drawDialog(body)
		return overlay(screen, box), at
	case m.marks.asks != "":
		return overlay(screen, m.drawMarks(body)), nil
	case m.prompt.list != nil:
		return overlay(screen, m.drawPalette(body)), cursor
	}
	return screen, cursor
}

func (m *Model) small() bool { return m.w < minWidth || m.h < minHeight }

func (m *Model) ascii(screen string) string {
	if !m.opts.ASCII {
		return screen
	}
	return strings.Map(widget.ASCII, screen)
}

// nameW is the width from which on the header has room for whole words.
const nameW = 100

// header draws the two lines that never change their meaning.
func (m *Model) header() string {
	base := m.pal.Style(themes.Header)
	bold := base.With(themes.Bold).Lipgloss()
	job := m.live.Snap().GetJob()
	left := " " + bold.Render(orDash(job.GetName()))
	if job.GetEmulated() {
		left += " (emulated)"
	}
	left += fmt.Sprintf("  iter %s  %d ranks  ", phrase.Iteration(job.GetIteration()), len(m.live.Ranks)) + bold.Render(phrase.Ms(job.GetIterationMs()))
	right := m.headerRight()
	if job.GetBaselineMs() > 0 {
		change, against := " "+phrase.Percent(job.GetSlowdown()), " vs base"
		if lipgloss.Width(left+change+against)+lipgloss.Width(right) >= m.w {
			against = "" // a figure is worth more than the word
		}
		left += m.put(slowRole(job.GetSlowdown()), change+against)
	}
	return row(base, m.w, left, right, 1) + "\n" + m.headerSecond()
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

// headerRight is connection, data age and mode.
func (m *Model) headerRight() string {
	mode := m.pal.Style(themes.Header).With(themes.Bold)
	switch p := m.live.Snap().GetPolicy(); {
	case p.GetFrozen():
		mode = m.pal.Style(themes.Lost)
	case p.GetMode() == "auto":
		mode = m.pal.Style(themes.Auto)
	}
	text, role := m.connection()
	return m.recordingMark() + m.put(role, text) + " " + mode.Lipgloss().Render(" "+phrase.Mode(m.live.Snap().GetPolicy())+" ")
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
	if m.live.Over() {
		return "finished", themes.Header
	}
	if m.opts.Lag != nil {
		if lag := m.opts.Lag(); lag > 0 {
			return fmt.Sprintf("LAG %ds", int(lag.Round(time.Second).Seconds())), themes.Warn
		}
	}
	age := f.Age(m.clock())
	text := fmt.Sprintf("data %.1fs", age.Seconds())
	if age >= 10*time.Second {
		text = fmt.Sprintf("data %ds old", int(age.Seconds()))
	}
	if f.Slow {
		text = "LAG  " + text
	}
	if age > staleAfter {
		return text, themes.Warn
	}
	return text, themes.Header
}

func (m *Model) headerSecond() string {
	snap := m.live.Snap()
	right := m.clock().UTC().Format("15:04:05Z") + " "
	if m.opts.Replay != nil {
		right = m.replayHead()
	}
	if snap.Actor != "" && m.w >= nameW {
		right = fmt.Sprintf("%s (%s)%s  %s", snap.Actor, orNone(snap.Role), m.company(), right)
	} else if snap.Actor != "" {
		right = widget.Cut(snap.Actor, 12) + m.company() + "  " + right
	}
	left := " "
	inc := m.subject().Incident()
	switch head := m.recoveryHead(); {
	case head != "":
		left += head
	case inc == nil:
		left += "no incident  " + snap.GetJob().GetState()
	case page.Open(inc):
		left += m.put(themes.Bad, inc.Id) + m.others() + fmt.Sprintf(" %s since %s  %s", inc.State, phrase.Iteration(inc.OnsetIteration), phrase.Verdict(inc.Verdict))
	default:
		left += m.put(themes.Good, inc.Id) + " " + inc.State + "  " + phrase.Verdict(inc.Verdict)
	}
	return row(m.pal.Style(themes.Header), m.w, left, right, 1)
}

// others counts the open incidents beside the one that is named.
func (m *Model) others() string {
	if n := m.live.OpenIncidents() - 1; n > 0 {
		return m.put(themes.Bad, fmt.Sprintf(" +%d open", n))
	}
	return ""
}

// bar draws what waits for a decision, else what is being done. It speaks of one
// incident and says which; its keys act on that one and no other.
func (m *Model) bar() string {
	if bar, ok := m.recoveryBar(); ok {
		return bar
	}
	s := m.awaited()
	prop := s.Proposal()
	if standing := page.Standing(s, s.Awaited()); standing != "" {
		return m.approvedBar(s, standing)
	}
	if prop == nil {
		return row(m.blank(), m.w, m.quietBar(s), m.elsewhere(), 2)
	}
	keys := m.decisionKeys() + " "
	text := m.proposed(s, prop, m.w-lipgloss.Width(keys)-2)
	room := m.w - lipgloss.Width(text+keys) - 2
	if plan := "  " + phrase.Plan(prop.Previous, prop.MicroBatches, room-2); lipgloss.Width(plan) <= room {
		text += plan
	}
	return row(m.pal.Style(themes.Urgent), m.w, widget.Arrows(text, m.opts.ASCII), keys, 2)
}

// decisionKeys names the keys, or why they don't work.
func (m *Model) decisionKeys() string {
	if m.opts.Replay != nil {
		return "recorded: no decision here  i why"
	}
	if !m.may("approver") {
		return "needs role approver  " + m.does(key.Why)
	}
	if m.live.Feed.Conn != feed.Live {
		return "engine unreachable"
	}
	return m.does(key.Approve) + "  " + m.does(key.Veto) + "  " + m.does(key.Why)
}

func (m *Model) quietBar(s *page.State) string {
	left := " "
	inc := s.Incident()
	switch {
	case m.live.Snap().GetPolicy().GetFrozen():
		left += m.put(themes.Lost, " FROZEN ") + m.put(themes.Text, " nothing new is dispatched; "+m.table.Name(key.Freeze, key.Global)+" unfreezes. ")
	case m.live.Feed.Conn == feed.Lost:
		left += m.put(themes.Warn, "the last picture is shown: "+m.live.Feed.Err+"  ")
	}
	if auto := page.Auto(s); auto != "" && (inc == nil || !page.Open(inc)) {
		left += m.put(themes.Auto, " "+auto+" ") + " "
	}
	if inc == nil {
		return left + m.put(themes.Good, "● ") + m.put(themes.Text, orState(m.live.Snap().GetJob().GetState()))
	}
	role := themes.Accent
	if page.Open(inc) {
		role = themes.Warn
	}
	return left + m.put(role, inc.Id+" ") + m.put(themes.Text, page.Doing(s))
}

func orState(s string) string {
	if s == "" {
		return "waiting for the first snapshot"
	}
	return s
}

// tabs draws the pages.
func (m *Model) tabs() string {
	right := m.lookBanner()
	if !m.pausedAt.IsZero() {
		right += m.put(themes.Urgent, fmt.Sprintf(" PAUSED, live is %ds ahead ", int(m.now().Sub(m.pausedAt).Seconds()))) + " "
	}
	if note := m.zoomNote(); note != "" {
		right = m.put(themes.Accent, note) + right
	}
	room := m.w - lipgloss.Width(right)
	left, zones := m.tabsWith("  ", true)
	if lipgloss.Width(left) > room+len("  ") { // what follows the last may be cut
		left, zones = m.tabsWith(" ", true)
	}
	if lipgloss.Width(left) > room+len(" ") {
		left, zones = m.tabsWith(" ", false)
	}
	m.zones = append(m.zones, zones...)
	return row(m.blank(), m.w, ansi.Truncate(left, room, ""), right, 0)
}

// tabsWith draws the pages a gap apart, all with their words or the present one
// only, and where each can be clicked.
func (m *Model) tabsWith(gap string, words bool) (left string, zones []zone) {
	left = " "
	for _, s := range key.Pages {
		at := lipgloss.Width(left)
		b := m.pageKey(s).Help()
		switch {
		case s == m.current:
			left += m.put(themes.Selected, " "+b.Key+" "+b.Desc+" ") + " "
		case words:
			left += m.put(themes.Key, b.Key) + m.put(themes.Dim, " "+b.Desc) + gap
		default:
			left += m.put(themes.Key, b.Key) + gap
		}
		zones = append(zones, zone{widget.Rect{X: at, Y: m.h - footerRows, W: lipgloss.Width(left) - at, H: 1}, func(m *Model) tea.Cmd {
			m.show(s)
			return nil
		}})
	}
	return left, zones
}

func (m *Model) pageKey(s key.Scope) key.Binding {
	for _, b := range m.table.In(key.Global) {
		if shows[b.Action] == s && b.Action != key.Why {
			return b
		}
	}
	return key.Binding{}
}

// lastRow draws the keys that work here; a prompt or a message takes their
// place.
func (m *Model) lastRow(y int) (string, *tea.Cursor) {
	if m.prompt != nil {
		return m.promptRow(y)
	}
	if m.help != nil && m.help.search != nil {
		return m.searchRow(y)
	}
	left := " "
	switch {
	case m.hinting && !m.modal():
		left += m.put(themes.Accent, m.hintText())
	case m.toast.text != "" && m.now().Before(m.toast.till):
		left += m.put(m.toast.role, m.toast.text)
	case m.help != nil:
		left += m.keys(m.w-1, key.Help)
	case m.dialog != nil:
		left += m.keys(m.w-1, key.Dialog)
	case m.marks.asks != "":
		left += m.put(themes.Key, "a-z") + m.put(themes.Dim, " mark  ") + m.put(themes.Key, m.table.Name(key.Cancel, key.Prompt)) + m.put(themes.Dim, " cancel")
	default:
		list := m.offered(m.table.Footer(m.scopes()...))
		left += m.shortHelp(m.w-1, list)
		m.zones = append(m.zones, tapZones(list, 1, y, m.w-2)...)
	}
	return row(m.blank(), m.w, left, "", 0), nil
}

// promptKeysW is the room that a prompt leaves for its keys.
const promptKeysW = 24

func (m *Model) promptRow(y int) (string, *tea.Cursor) {
	return m.inputRow(m.prompt.sign, &m.prompt.input, y)
}

// inputRow is a text entry behind its sign, with its keys.
func (m *Model) inputRow(which string, in *textinput.Model, y int) (string, *tea.Cursor) {
	sign := " " + m.put(themes.Key, which)
	text, cursor := showInput(in, m.w-promptKeysW-lipgloss.Width(sign), lipgloss.Width(sign), y)
	right := m.shortHelp(promptKeysW-1, m.promptKeys(which))
	switch {
	case m.prompt == nil || m.prompt.note == "":
	case m.prompt.mistake:
		right = m.put(themes.Warn, widget.Cut(m.prompt.note, max(promptKeysW-1, m.w-cursor.X-3)))
	default:
		right = m.put(themes.Accent, m.prompt.note)
	}
	return row(m.blank(), m.w, sign+text, right+" ", 1), cursor
}

// promptKeys are the keys of a text entry; enter runs a command and keeps what
// is searched for.
func (m *Model) promptKeys(which string) []key.Binding {
	list := slices.Clone(m.table.Footer(key.Prompt))
	for i, b := range list {
		if b.Action == key.Confirm && which == "/" {
			list[i].SetHelp(b.Help().Key, "keep")
		}
	}
	return list
}

// offered leaves out what a recording can't do: nothing is decided in it.
func (m *Model) offered(list []key.Binding) []key.Binding {
	if m.opts.Replay == nil {
		return list
	}
	return slices.DeleteFunc(list, func(b key.Binding) bool { return key.Decides(b.Action) })
}

// keys lists the keys that work in the scopes, as many as fit in w columns.
func (m *Model) keys(w int, scopes ...key.Scope) string {
	return m.shortHelp(w, m.table.Footer(scopes...))
}

func (m *Model) shortHelp(w int, show []key.Binding) string {
	dim := m.pal.Style(themes.Dim).Lipgloss()
	h := help.Model{ShortSeparator: "  ", Ellipsis: "…", Styles: help.Styles{
		ShortKey: m.pal.Style(themes.Key).Lipgloss(), ShortDesc: dim, ShortSeparator: dim, Ellipsis: dim,
	}}
	h.SetWidth(w)
	var list []bubbles.Binding
	for _, b := range show {
		list = append(list, b.Binding)
	}
	return h.ShortHelpView(list)
}
