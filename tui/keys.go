package tui

import (
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/page/recovery"
	"github.com/failslow/falcon/tui/page/validate"
	"github.com/failslow/falcon/tui/record"
)

// key gives a key to whoever owns the keyboard: help, dialog, prompt, page.
func (m *Model) key(k tea.KeyPressMsg) tea.Cmd {
	switch {
	case m.small():
		return m.smallKey(k)
	case m.help != nil:
		if m.help.key(k, m.w) {
			m.help = nil
		}
		return nil
	case m.decisions.dialog != nil:
		return m.dialogKey(k)
	case m.prompt != nil:
		return m.promptKey(k)
	case m.work.marks.asks != "":
		return m.work.markKey(k)
	}
	return m.act(m.keys.Lookup(k, m.scopes(true)...))
}

func (m *Model) dialogKey(k tea.KeyPressMsg) tea.Cmd {
	cmd, leave := m.decisions.key(k, m.work.live)
	if leave {
		m.leaving = true
		return tea.Quit
	}
	return cmd
}

// smallKey cancels and leaves, and nothing else: where a dialog can't be seen,
// nothing can be decided.
func (m *Model) smallKey(k tea.KeyPressMsg) tea.Cmd {
	switch cancel := m.keys.Lookup(k, key.Dialog) == key.Cancel; {
	case m.decisions.dialog != nil && (cancel || m.decisions.dialog.leaves()):
		return m.dialogKey(k)
	case m.decisions.dialog != nil:
	case cancel && m.modal():
		m.help, m.prompt, m.work.marks.asks = nil, nil, ""
	case m.keys.Lookup(k, key.Global) == key.Quit:
		return m.quit()
	}
	return nil
}

// modal reports whether something lies over the page and owns keys and mouse.
func (m *Model) modal() bool {
	return m.help != nil || m.decisions.dialog != nil || m.prompt != nil || m.work.marks.asks != ""
}

var shows = map[key.Action]key.Scope{
	key.ShowOverview: key.Overview, key.ShowRanks: key.Ranks, key.ShowGrid: key.Grid,
	key.ShowPosterior: key.Posterior, key.ShowLadder: key.Ladder, key.ShowValidate: key.Validate, key.ShowRecovery: key.Recovery, key.ShowEvents: key.Events,
}

func (m *Model) act(a key.Action) tea.Cmd {
	if to, ok := shows[a]; ok && a != key.Why {
		m.work.show(to)
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
	case key.Export:
		return m.export()
	case key.Copy:
		return m.copyHere()
	case key.CopyLink:
		return m.copy("link "+m.work.here().String(), "link.txt", m.work.here().String()+"\n")
	case key.Mute:
		m.mute()
	case key.Command:
		m.openPalette("")
	case key.Filter:
		m.prompt = newCommandLine(m.keys, "/", m.work.filter(), m.w)
	case key.ShowHelp:
		m.notes.clear() // its row shows how to leave
		m.help = newHelp(m.keys, m.scopes(false)...)
	case key.Pause:
		m.pause()
	case key.Theme:
		return m.themes.next()
	case key.Mouse:
		m.toggleMouse()
	case key.Quit:
		return m.quit()
	default:
		return m.work.move(a)
	}
	return nil
}

// move is what an action does to what the operator looks at.
func (v *workspace) move(a key.Action) tea.Cmd {
	switch a {
	case key.Why:
		return v.why()
	case key.NextPage:
		v.turn(+1)
	case key.PrevPage:
		v.turn(-1)
	case key.Back:
		v.back()
	case key.OlderIncident:
		return v.stepIncident(+1)
	case key.NewerIncident:
		return v.stepIncident(-1)
	case key.Follow:
		v.follow()
	case key.PreviousView:
		v.show(v.previous)
	case key.ZoomPane:
		v.zoomPane()
	case key.SetMark, key.GoMark:
		v.askMark(a)
	default:
		return v.act(a)
	}
	return nil
}

// operator is who decides at this console, and what they see.
func (m *Model) operator() decision.Operator {
	return m.work.operator(m.decisions.dialog.incident(), m.opts.Replay != nil)
}

// decideBy leads to what decides something; all but freezing and letting a job
// go ask first.
func (m *Model) decideBy(a key.Action) tea.Cmd {
	by := m.operator()
	switch a {
	case key.Approve:
		return m.decisions.pose(by.Decide(true))
	case key.Veto:
		return m.decisions.pose(by.Decide(false))
	case key.TakeRung:
		if at, ok := m.work.pages[key.Ladder].(*ladder.Page); ok {
			return m.decisions.pose(by.Take(at.Chosen(by.Subject), m.now()))
		}
	case key.Mode:
		return m.decisions.pose(by.SetMode())
	case key.Freeze:
		return m.decisions.freeze(by)
	case key.RunTest:
		return m.openTest(nil)
	case key.StopTest:
		return m.decisions.stopTest(by)
	case key.AbortRecovery:
		return m.decisions.pose(by.Recover(decision.VerbAbort))
	case key.FenceNode:
		m.promptFor(decision.VerbFence)
	case key.RenewRank:
		m.promptFor(decision.VerbRenew)
	}
	return nil
}

// openTest asks before the job is held: for the links named, else for what is
// picked.
func (m *Model) openTest(links []string) tea.Cmd {
	if why := m.operator().LacksApprover("a test"); why != "" {
		return m.decisions.pose(nil, decision.Refusal{Text: why})
	}
	m.work.show(key.Validate)
	at, ok := m.work.pages[key.Validate].(*validate.Page)
	if !ok {
		return nil
	}
	return m.decisions.pose(m.operator().Test(at.Request(links, m.work.state)))
}

// promptFor fills a command in, for the reason to be typed behind.
func (m *Model) promptFor(verb decision.Verb) {
	at, ok := m.work.pages[key.Recovery].(*recovery.Page)
	if !ok {
		return
	}
	what := at.Node(m.work.state)
	if verb == decision.VerbRenew {
		what = strconv.Itoa(int(at.Rank(m.work.state)))
	}
	text := string(verb) + " "
	if what != "" {
		text += what + " "
	}
	m.openPalette(text)
}

// openPalette opens the line for commands with its list.
func (m *Model) openPalette(text string) {
	m.prompt = newPalette(m.keys, m.scopes(true), text, m.w)
}

// pause holds the pages still, or the recording.
func (m *Model) pause() {
	if m.opts.Replay != nil { // what is shown never runs ahead
		m.opts.Replay.Do(record.Toggle())
		return
	}
	m.work.pause()
}

func (m *Model) quit() tea.Cmd {
	if m.opts.QuitNote == "" || m.work.live.Over() {
		m.leaving = true
		return tea.Quit
	}
	return m.decisions.pose(&decision.Leave{Note: m.opts.QuitNote}, decision.Refusal{})
}

// promptKey handles a key while a command or filter is typed.
func (m *Model) promptKey(k tea.KeyPressMsg) tea.Cmd {
	p := m.prompt
	e := p.key(k)
	m.previewFilter()
	return m.entered(p, e)
}

// entered runs what the command line was closed with.
func (m *Model) entered(p *commandLine, e entered) tea.Cmd {
	switch {
	case e.warn != "":
		m.notes.say(themes.Warn, e.warn)
	case !e.closed:
	case p.list == nil:
		m.prompt = nil
		m.work.setFilter(e.text)
	case e.action != key.None:
		m.prompt = nil
		return m.act(e.action)
	default:
		m.prompt = nil
		return m.command(e.words)
	}
	return nil
}

// previewFilter says beside a filter what it would leave.
func (m *Model) previewFilter() {
	if m.prompt != nil && m.prompt.filters() {
		m.prompt.note, m.prompt.mistake = m.work.preview(m.prompt.input.Value())
	}
}

// paste reaches a prompt or a reason, never a confirmation.
func (m *Model) paste(msg tea.PasteMsg) {
	switch {
	case m.help != nil && m.help.search != nil:
		m.help.take(msg)
	case m.decisions.dialog != nil:
		m.decisions.dialog.paste(msg)
	case m.prompt != nil:
		m.prompt.write(msg)
		m.previewFilter()
	}
}

// command runs what was typed after ":".
func (m *Model) command(words []string) tea.Cmd {
	if len(words) == 0 {
		return nil
	}
	for _, p := range key.Pages {
		if len(words) == 1 && strings.HasPrefix(string(p), words[0]) {
			m.work.show(p)
			return nil
		}
	}
	arg := strings.Join(words[1:], " ")
	switch words[0] {
	case commandTest:
		return m.openTest(words[1:])
	case string(decision.VerbFence), string(decision.VerbRenew), string(decision.VerbLift):
		return m.decisions.demand(m.operator(), decision.Verb(words[0]), words[1:])
	case "mute":
		m.mute()
	case "open":
		return m.work.openTyped(arg)
	case "rank":
		m.work.chooseRank(arg)
	case "filter":
		m.work.commandFilter(arg)
	case "theme":
		return m.themes.choose(arg)
	case "help":
		m.help = newHelp(m.keys, m.scopes(false)...)
	case "at":
		m.seek(arg)
	case "q", "quit":
		return m.quit()
	default:
		m.notes.say(themes.Warn, "no command "+strconv.Quote(words[0])+"; "+m.keys.Name(key.Command, key.Global)+" lists them all")
	}
	return nil
}

// mute switches the bell off, or on again.
func (m *Model) mute() {
	if m.alerts.Mute() {
		m.notes.say(themes.Accent, "the bell is off in this console; B or :mute brings it back")
		return
	}
	m.notes.say(themes.Accent, "the bell is on")
}

// copyHere copies what is under the cursor.
func (m *Model) copyHere() tea.Cmd {
	what, text := m.work.underCursor()
	if text == "" {
		m.notes.say(themes.Dim, "there is nothing under the cursor to copy")
		return nil
	}
	return m.copy(what, "copied.txt", text)
}

func (m *Model) copy(what, name, text string) tea.Cmd {
	note, cmd := m.exporter.copy(what, name, text)
	m.notes.say(themes.Good, note)
	return cmd
}

// export makes the report of the incident on screen.
func (m *Model) export() tea.Cmd {
	id := m.work.lookedAt()
	if id == "" {
		m.notes.say(themes.Dim, "there is no incident to report")
		return nil
	}
	m.notes.say(themes.Accent, "making the report of "+id+" …")
	return m.exporter.report(m.src, id)
}
