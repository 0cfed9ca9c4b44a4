package tui

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/palette"
	"github.com/failslow/falcon/tui/record"
)

// key gives a key to whoever owns the keyboard: help, dialog, prompt, page.
func (m *Model) key(k tea.KeyPressMsg) tea.Cmd {
	switch {
	case m.small():
		return m.smallKey(k)
	case m.help != nil:
		return m.helpKey(k)
	case m.dialog != nil:
		return m.dialogKey(k)
	case m.prompt != nil:
		return m.promptKey(k)
	case m.marks.asks != "":
		return m.markKey(k)
	}
	return m.act(m.table.Lookup(k, m.scopes()...))
}

// interrupt leaves when it is pressed twice.
const interrupt = "ctrl+c"

// dialogKey handles a key while a dialog is open.
func (m *Model) dialogKey(k tea.KeyPressMsg) tea.Cmd {
	d := m.dialog
	if d.leaves() && k.String() == interrupt {
		m.leaving = true // asked for twice
		return tea.Quit
	}
	switch d.key(k, m.table.Lookup(k, key.Dialog), m.live, m.now()) {
	case cancelled:
		m.dialog = nil
	case pressed:
		r := d.submit()
		if r.Leave {
			m.leaving = true
			return tea.Quit
		}
		return submit(m.src, d.id, r)
	case keepOpen:
	}
	return nil
}

// smallKey cancels and leaves, and nothing else: where a dialog can't be seen,
// nothing can be decided.
func (m *Model) smallKey(k tea.KeyPressMsg) tea.Cmd {
	switch cancel := m.table.Lookup(k, key.Dialog) == key.Cancel; {
	case m.dialog != nil && (cancel || m.dialog.leaves()):
		return m.dialogKey(k)
	case m.dialog != nil:
	case cancel && m.modal():
		m.help, m.prompt, m.marks.asks = nil, nil, ""
	case m.table.Lookup(k, key.Global) == key.Quit:
		return m.quit()
	}
	return nil
}

var shows = map[key.Action]key.Scope{
	key.ShowOverview: key.Overview, key.ShowRanks: key.Ranks, key.ShowGrid: key.Grid,
	key.ShowPosterior: key.Posterior, key.ShowLadder: key.Ladder, key.ShowValidate: key.Validate, key.ShowRecovery: key.Recovery, key.ShowEvents: key.Events,
}

func (m *Model) act(a key.Action) tea.Cmd {
	if a == key.Why {
		return m.why()
	}
	if to, ok := shows[a]; ok {
		m.show(to)
		return nil
	}
	if c, ok := replayCommands[a]; ok {
		m.opts.Replay.Do(c)
		return nil
	}
	if key.Decides(a) {
		return m.decideBy(a)
	}
	switch a {
	case key.None:
	case key.NextPage, key.PrevPage:
		m.turn(a)
	case key.Back:
		m.back()
	case key.Export:
		return m.export()
	case key.Copy:
		return m.copyHere()
	case key.CopyLink:
		return m.copyLink()
	case key.Mute:
		m.mute()
	case key.OlderIncident:
		return m.stepIncident(+1)
	case key.NewerIncident:
		return m.stepIncident(-1)
	case key.Command:
		m.openPalette("")
	case key.Filter:
		m.prompt = m.newPrompt("/", m.filter())
	case key.ShowHelp:
		m.toast = toast{} // its row shows how to leave
		m.help = newHelp(m.table, m.scopesHere()...)
	case key.Pause:
		m.pause()
	case key.Follow:
		m.follow()
	case key.Theme:
		return m.nextTheme()
	case key.Mouse:
		m.toggleMouse()
	case key.PreviousView:
		m.show(m.previous)
	case key.ZoomPane:
		m.zoomPane()
	case key.SetMark, key.GoMark:
		m.askMark(a)
	case key.Quit:
		return m.quit()
	default:
		return m.toPage(a)
	}
	return nil
}

// toPage gives an action to the page, and its choice of rank to the feed; what
// the page wants shown is shown on the page that it belongs to.
func (m *Model) toPage(a key.Action) tea.Cmd {
	if to := m.pages[m.current].Act(a, m.pointedState(), m.body()); to != "" {
		m.show(to)
	}
	m.shareChoice()
	if id, ok := m.state.Looked("INC-"); ok {
		return m.browse(id)
	}
	if id, ok := m.state.Looked("REC-"); ok {
		if p, is := m.pages[key.Recovery].(page.Chooser); is {
			p.Choose(id)
		}
	}
	return nil
}

// shareChoice keeps the live state on the operator's rank while paused.
func (m *Model) shareChoice() {
	if m.live != m.state {
		if m.state.Following() {
			m.live.Follow()
		} else {
			m.live.Select(m.state.Rank())
		}
	}
	m.ask()
}

func (m *Model) turn(a key.Action) {
	step := 1
	if a == key.PrevPage {
		step = len(key.Pages) - 1
	}
	m.show(key.Pages[(slices.Index(key.Pages, m.current)+step)%len(key.Pages)])
}

// filter is the text that filters the present page, or "".
func (m *Model) filter() string {
	switch m.current {
	case key.Events:
		return m.state.Filter
	case key.Ranks:
		return m.state.RankFilter()
	}
	return ""
}

// commandFilter filters the page, where it has a filter.
func (m *Model) commandFilter(text string) {
	if m.table.ForAction(m.current, key.Filter).Action == key.None {
		m.say(themes.Warn, "this page has no filter; ranks and events have one")
		return
	}
	m.setFilter(text)
}

// setFilter filters the present page.
func (m *Model) setFilter(text string) {
	if m.current == key.Events {
		m.state.Filter = text
		return
	}
	m.filterRanks(text)
}

func (m *Model) follow() {
	m.state.Follow()
	m.shareChoice()
}

// pause holds the pages still on a copy of the present state.
func (m *Model) pause() {
	if m.opts.Replay != nil { // what is shown never runs ahead
		m.opts.Replay.Do(record.Toggle())
		return
	}
	if !m.pausedAt.IsZero() {
		m.live.Filter, m.live.Metric = m.state.Filter, m.state.Metric
		chosen := m.state.RankFilter()
		m.state, m.pausedAt = m.live, time.Time{}
		m.filterRanks(chosen)
		m.ask()
		return
	}
	held := *m.live
	m.state, m.pausedAt = &held, m.now()
}

func (m *Model) quit() tea.Cmd {
	if m.opts.QuitNote == "" || m.live.Over() {
		m.leaving = true
		return tea.Quit
	}
	return m.pose(&decision.Leave{Note: m.opts.QuitNote}, decision.Refusal{})
}

// prompt is the line at the bottom: ":" commands, "/" filters.
type prompt struct {
	sign    string
	input   textinput.Model
	note    string        // what the text so far would do, beside it
	mistake bool          // the note says what is wrong with it
	list    *palette.List // of ":", else nil
}

// newPrompt takes as much as its row shows, so that it never scrolls.
func (m *Model) newPrompt(sign, text string) *prompt {
	return &prompt{sign: sign, input: newInput(m.table, key.Prompt, text, max(1, m.w-promptKeysW-len(sign)-3))}
}

func (m *Model) promptKey(k tea.KeyPressMsg) tea.Cmd {
	p := m.prompt
	a := m.table.Lookup(k, key.Prompt)
	if p.list != nil {
		if cmd, done := m.paletteKey(a); done {
			return cmd
		}
	}
	switch a {
	case key.Cancel:
		m.prompt = nil
	case key.Confirm:
		text := strings.TrimSpace(p.input.Value())
		if p.sign == "/" && p.mistake {
			m.say(themes.Warn, p.note)
			return nil // to mend it
		}
		m.prompt = nil
		m.setFilter(text)
	default:
		m.typed(k)
	}
	return nil
}

// typed gives the prompt a key or pasted text.
func (m *Model) typed(msg tea.Msg) {
	p := m.prompt
	before := p.input.Value()
	p.input = enter(p.input, msg)
	if p.list != nil && p.input.Value() != before {
		p.list.Search(p.input.Value())
	}
	m.preview(p)
}

// paste reaches a prompt or a reason, never a confirmation.
func (m *Model) paste(msg tea.PasteMsg) {
	switch {
	case m.help != nil && m.help.search != nil:
		m.help.take(msg)
	case m.dialog != nil:
		m.dialog.paste(msg)
	case m.prompt != nil:
		m.typed(msg)
	}
	m.dirty = true
}

// command runs what was typed after ":".
func (m *Model) command(words []string) tea.Cmd {
	if len(words) == 0 {
		return nil
	}
	for _, p := range key.Pages {
		if len(words) == 1 && strings.HasPrefix(string(p), words[0]) {
			m.show(p)
			return nil
		}
	}
	arg := strings.Join(words[1:], " ")
	switch words[0] {
	case "test":
		return m.openTest(words[1:])
	case string(decision.VerbFence), string(decision.VerbRenew), string(decision.VerbLift):
		return m.demand(decision.Verb(words[0]), words[1:])
	case "mute":
		m.mute()
	case "open":
		return m.openTyped(arg)
	case "rank":
		m.chooseRank(arg)
	case "filter":
		m.commandFilter(arg)
	case "theme":
		return m.setTheme(arg)
	case "help":
		m.help = newHelp(m.table, m.scopesHere()...)
	case "at":
		return m.seek(arg)
	case "q", "quit":
		return m.quit()
	default:
		m.say(themes.Warn, "no command "+strconv.Quote(words[0])+"; "+m.table.Name(key.Command, key.Global)+" lists them all")
	}
	return nil
}

func (m *Model) chooseRank(arg string) {
	n, err := strconv.Atoi(arg)
	if err != nil || !m.state.Select(int32(min(n, 1<<30))) {
		m.say(themes.Warn, "rank takes a number from 0 to "+strconv.Itoa(len(m.state.Ranks)-1))
		return
	}
	m.shareChoice()
	if m.current == key.Overview || m.current == key.Ladder || m.current == key.Events {
		m.show(key.Ranks)
	}
}
