package tui

import (
	"strconv"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/keyguard"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/page/recovery"
	"github.com/failslow/falcon/tui/page/validate"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/record"
)

// handleKey gives a key to whoever owns the keyboard: help, dialog, prompt, page.
func (m *Model) handleKey(k tea.KeyPressMsg) tea.Cmd {
	switch {
	case m.leaving:
		return m.leave()
	case m.isTooSmall():
		return m.handleSmallKey(k)
	case m.help != nil:
		m.decisions.noteKey(keyguard.KeyStep)
		if m.help.handleKey(k, m.w) {
			m.help = nil
		}
		return nil
	case m.decisions.dialog != nil:
		return m.dialogKey(k)
	case m.output != nil:
		m.decisions.noteKey(keyguard.KeyStep)
		return outputKey(m, k)
	case m.prompt != nil:
		m.decisions.noteKey(promptKind(k))
		return m.promptKey(k)
	case m.work.marks.asks != "":
		m.decisions.noteKey(keyguard.KeyStep)
		return m.work.handleMarkKey(k)
	}
	a := m.keys.Lookup(k, m.keyScopes(true)...)
	m.decisions.noteKey(pageKind(a))
	return m.perform(a)
}

// promptKind is what a key means to a prompt.
func promptKind(k tea.KeyPressMsg) keyguard.Kind {
	if k.Text != "" {
		return keyguard.KeyText
	}
	return keyguard.KeyStep
}

// pageKind is what a key means to a page.
func pageKind(a key.Action) keyguard.Kind {
	if a == key.None {
		return keyguard.KeyStray
	}
	return keyguard.KeyStep
}

func (m *Model) dialogKey(k tea.KeyPressMsg) tea.Cmd {
	cmd, leave := m.decisions.handleKey(k, m.work.live)
	if leave {
		return m.leave()
	}
	return cmd
}

// handleSmallKey only cancels and leaves: nothing is decided in a dialog that can't be seen.
func (m *Model) handleSmallKey(k tea.KeyPressMsg) tea.Cmd {
	switch cancel := m.keys.Lookup(k, key.Dialog) == key.Cancel; {
	case m.decisions.dialog != nil && (cancel || m.decisions.dialog.asksToLeave()):
		return m.dialogKey(k)
	case m.decisions.dialog != nil:
	case cancel && m.hasOverlay():
		m.help, m.output, m.prompt, m.work.marks.asks = nil, nil, nil, ""
	case m.keys.Lookup(k, key.Global) == key.Quit:
		return m.askToQuit()
	}
	return nil
}

// hasOverlay reports whether something lies over the page and owns keys and mouse.
func (m *Model) hasOverlay() bool {
	return m.help != nil ||
		m.output != nil ||
		m.decisions.dialog != nil ||
		m.prompt != nil ||
		m.work.marks.asks != ""
}

var shows = map[key.Action]key.Scope{
	key.ShowOverview:  key.Overview,
	key.ShowRanks:     key.Ranks,
	key.ShowGrid:      key.Grid,
	key.ShowPosterior: key.Posterior,
	key.ShowLadder:    key.Ladder,
	key.ShowValidate:  key.Validate,
	key.ShowRecovery:  key.Recovery,
	key.ShowEvents:    key.Events,
}

func (m *Model) perform(a key.Action) tea.Cmd {
	if to, ok := shows[a]; ok && a != key.Why {
		m.work.showPage(to)
		return nil
	}
	if c, ok := replayCommands[a]; ok {
		m.opts.Replay.Do(c)
		return nil
	}
	if key.Decides(a) {
		return m.openDecision(a)
	}
	switch a {
	case key.None:
	case key.Ack, key.Snooze, key.WriteNote, key.HandOver:
		return m.sayByKey(a)
	case key.ShowOutput:
		return openOutput(m)
	case key.Export:
		return m.exportReport()
	case key.Copy:
		return m.copyUnderCursor()
	case key.CopyLink:
		return m.copyText(
			"link "+m.work.linkToHere().String(),
			"link.txt",
			m.work.linkToHere().String()+"\n",
		)
	case key.Mute:
		m.toggleMute()
	case key.Command:
		m.openPalette("")
	case key.Filter:
		m.prompt = newCommandLine(m.keys, "/", m.work.filterText(), m.w)
	case key.ShowHelp:
		m.notes.clearNote() // its row shows how to leave
		openHelp(m)
	case key.Runbook:
		m.help = newRunbook(newHelpBox(m.keys), runbookTopic(m.whoDecides()))
	case key.Pause:
		m.togglePause()
	case key.Theme:
		return m.themes.nextTheme()
	case key.Mouse:
		m.toggleMouse()
	case key.Quit:
		return m.askToQuit()
	case key.ShowFleet:
		return leaveJob(m)
	case key.Back:
		if m.opts.Context != "" && m.work.isAtTop() {
			return leaveJob(m)
		}
		return m.work.performMove(a)
	default:
		return m.work.performMove(a)
	}
	return nil
}

// performMove is what an action does to what the operator looks at.
func (v *workspace) performMove(a key.Action) tea.Cmd {
	switch a {
	case key.Why:
		return v.showLadder()
	case key.NextPage:
		v.turnPage(+1)
	case key.PrevPage:
		v.turnPage(-1)
	case key.Back:
		v.goBack()
	case key.OlderIncident:
		return v.stepIncident(+1)
	case key.NewerIncident:
		return v.stepIncident(-1)
	case key.Follow:
		v.followWorst()
	case key.PreviousView:
		v.showPage(v.previous)
	case key.ZoomPane:
		v.zoomNextPane()
	case key.SetMark, key.GoMark:
		v.askForMark(a)
	default:
		return v.performOnPage(a)
	}
	return nil
}

// whoDecides is who decides at this console, and what they see.
func (m *Model) whoDecides() decision.Operator {
	return m.work.operatorFor(m.decisions.dialog.incidentID(), m.opts.Replay != nil)
}

// openDecision opens a decision's dialog, or says why there is none.
func (m *Model) openDecision(a key.Action) tea.Cmd {
	by := m.whoDecides()
	switch a {
	case key.Approve:
		return m.decisions.askQuestion(by.Decide(true))
	case key.Veto:
		return m.decisions.askQuestion(by.Decide(false))
	case key.TakeRung:
		if at, ok := m.work.pages[key.Ladder].(*ladder.Page); ok {
			return m.decisions.askQuestion(by.Take(at.Chosen(by.Subject), m.now()))
		}
	case key.Undo:
		return m.decisions.askQuestion(by.Undo())
	case key.Mode:
		return m.decisions.askQuestion(by.SetMode())
	case key.Freeze:
		return m.decisions.askQuestion(by.Freeze())
	case key.RunTest:
		return m.openTestDialog(m.suspectLinks())
	case key.StopTest:
		return m.decisions.askQuestion(by.StopTest(m.decisions.runningTest(by.Live)))
	case key.AbortRecovery:
		return m.decisions.askQuestion(by.Recover(decision.VerbAbort))
	case key.StateEnded:
		return m.decisions.askQuestion(by.Recover(decision.VerbEnded))
	case key.LiftFence:
		return liftByKey(m, by)
	case key.FenceNode:
		m.promptFor(decision.VerbFence)
	case key.RenewRank:
		m.promptFor(decision.VerbRenew)
	}
	return nil
}

// suspectLinks are the links of the incident on the overview, nil elsewhere.
func (m *Model) suspectLinks() []string {
	if m.work.current != key.Overview {
		return nil
	}
	return m.whoDecides().Subject.Incident().GetVerdict().GetLinks()
}

// openTestDialog asks before the job is held, for the links named or what is picked.
func (m *Model) openTestDialog(links []string) tea.Cmd {
	if why := m.whoDecides().LacksApprover("a test"); why != "" {
		return m.decisions.askQuestion(nil, decision.Refusal{Text: why})
	}
	m.work.showPage(key.Validate)
	at, ok := m.work.pages[key.Validate].(*validate.Page)
	if !ok {
		return nil
	}
	return m.decisions.askQuestion(m.whoDecides().Test(at.Request(links, m.work.state)))
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

// soundReason is why a fence is lifted by its key: the dialog says what that states.
const soundReason = "the node is said to be sound"

// liftByKey asks about the one node that is fenced; of several, a prompt asks which.
func liftByKey(m *Model, by decision.Operator) tea.Cmd {
	switch list := by.Live.Snap().GetFenced(); len(list) {
	case 0:
		return m.decisions.askQuestion(nil, decision.Refusal{Text: "no node is fenced", Mild: true})
	case 1:
		return m.decisions.askDemand(by, decision.VerbLift, []string{list[0], soundReason})
	default:
		m.notes.showNote(themes.Accent, "fenced are "+phrase.Few(list, 6))
		m.openPalette(string(decision.VerbLift) + " ")
	}
	return nil
}

// openPalette opens the line for commands with its list.
func (m *Model) openPalette(text string) {
	m.prompt = newPalette(m.keys, m.keyScopes(true), text, m.w)
}

// togglePause holds the pages still, or the recording.
func (m *Model) togglePause() {
	if m.opts.Replay != nil { // what is shown never runs ahead
		m.opts.Replay.Do(record.Toggle())
		return
	}
	m.work.togglePause()
}

func (m *Model) askToQuit() tea.Cmd {
	if m.opts.QuitNote == "" || m.work.live.Over() {
		return m.leave()
	}
	return m.decisions.askQuestion(&decision.Leave{Note: m.opts.QuitNote}, decision.Refusal{})
}

// promptKey handles a key while a command or filter is typed.
func (m *Model) promptKey(k tea.KeyPressMsg) tea.Cmd {
	p := m.prompt
	e := p.handleKey(k)
	m.previewFilter()
	return m.runEntered(p, e)
}

// runEntered runs what the command line was closed with.
func (m *Model) runEntered(p *commandLine, e entered) tea.Cmd {
	switch {
	case e.warn != "":
		m.notes.showNote(themes.Warn, e.warn)
	case !e.closed:
	case p.list == nil:
		m.prompt = nil
		m.work.setFilter(e.text)
	case e.action != key.None:
		m.prompt = nil
		return m.perform(e.action)
	default:
		m.prompt = nil
		return m.runCommand(e.words)
	}
	return nil
}

// previewFilter says beside a filter what it would leave.
func (m *Model) previewFilter() {
	if m.prompt != nil && m.prompt.typesFilter() {
		m.prompt.note, m.prompt.mistake = m.work.previewFilter(m.prompt.input.Value())
	}
}

// pasteText reaches a prompt or a reason, never a confirmation.
func (m *Model) pasteText(msg tea.PasteMsg) {
	m.decisions.guard.Paste(m.decisions.keyTime())
	switch p := m.searching(); {
	case p != nil:
		p.takeText(msg)
	case m.decisions.dialog != nil:
		m.decisions.dialog.pasteText(msg, m.work.live)
	case m.prompt != nil:
		m.prompt.writeText(msg)
		m.previewFilter()
	}
}

// runCommand runs what was typed after ":".
func (m *Model) runCommand(words []string) tea.Cmd {
	if len(words) == 0 {
		return nil
	}
	for _, p := range key.Pages {
		if len(words) == 1 && strings.HasPrefix(string(p), words[0]) {
			m.work.showPage(p)
			return nil
		}
	}
	arg := strings.Join(words[1:], " ")
	switch words[0] {
	case commandTest:
		return m.openTestDialog(words[1:])
	case string(decision.VerbFence), string(decision.VerbRenew), string(decision.VerbLift),
		string(decision.VerbBar), string(decision.VerbUnbar):
		return m.decisions.askDemand(
			m.whoDecides(),
			decision.Verb(words[0]),
			words[1:],
		)
	case decision.SayAck, decision.SaySnooze, decision.SayWake, decision.SayAssign,
		decision.SayNote, decision.SayHandOver:
		return m.decisions.say(m.whoDecides(), words[0], words[1:])
	case "mute":
		m.toggleMute()
	case "device":
		return m.work.openTyped("device/" + arg)
	case "open":
		return m.work.openTyped(arg)
	case "rank":
		m.work.chooseRank(arg)
	case "filter":
		m.work.commandFilter(arg)
	case "theme":
		return m.themes.chooseTheme(arg)
	case "help":
		openHelp(m)
	case "at":
		m.seekInReplay(arg)
	case "q", "quit":
		return m.askToQuit()
	default:
		m.notes.showNote(
			themes.Warn,
			"no command "+strconv.Quote(words[0])+"; "+m.keys.Name(key.Command, key.Global)+" lists them all",
		)
	}
	return nil
}

// toggleMute switches the bell off, or on again.
func (m *Model) toggleMute() {
	if m.alerts.Mute() {
		m.notes.showNote(themes.Accent, "the bell is off in this console; B or :mute brings it back")
		return
	}
	m.notes.showNote(themes.Accent, "the bell is on")
}

// copyUnderCursor copies what is under the cursor.
func (m *Model) copyUnderCursor() tea.Cmd {
	what, text := m.work.underCursor()
	if text == "" {
		m.notes.showNote(themes.Dim, "there is nothing under the cursor to copy")
		return nil
	}
	return m.copyText(what, "copied.txt", text)
}

func (m *Model) copyText(what, name, text string) tea.Cmd {
	note, cmd := m.exporter.copyText(what, name, text)
	m.notes.showNote(themes.Good, note)
	return cmd
}

// exportReport makes the report of the incident on screen.
func (m *Model) exportReport() tea.Cmd {
	if h := m.work.state.Feed.History; m.work.showsHistory() && h != nil {
		m.notes.showNote(themes.Accent, "making the report of the history …")
		return m.exporter.makeHistory(h)
	}
	id := m.work.shownIncident()
	if id == "" {
		m.notes.showNote(themes.Dim, "there is no incident to report")
		return nil
	}
	m.notes.showNote(themes.Accent, "making the report of "+id+" …")
	return m.exporter.makeReport(m.src, id)
}
