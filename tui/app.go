// Package tui is Falcon's console: a router over pages, with fixed header,
// proposal bar and footer, dialogs, and a prompt.
//
// It is a client of the engine's Console service and holds no truth: every
// picture comes from the feed, and a decision is only submitted, with the
// action, plan hash and job epoch that the operator saw. Update does no I/O
// and never blocks; calls run in commands that belong to this program alone,
// so that a stalled terminal holds no one else up. View returns a cached
// string until something has changed.
//
// Pages draw on a canvas of cells (package widget says why). All else is the
// libraries': rows and frames are lipgloss styles, what lies over a page is a
// layer that lipgloss composes, panes that scroll are viewports, text entries
// are textinputs, and the footer is the help bubble, fed by the key table.
package tui

import (
	"math/rand/v2"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	uv "github.com/charmbracelet/ultraviolet"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/alert"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/keyguard"
	"github.com/failslow/falcon/tui/link"
	"github.com/failslow/falcon/tui/widget"
)

// Options shape one console.
type Options struct {
	Theme    string                // "" = by the terminal's background
	ASCII    bool                  // draw with ASCII only
	Profile  *colorprofile.Profile // nil = what the terminal can show
	Now      func() time.Time      // nil = the real clock
	QuitNote string                // what else ends with the console; asks before leaving
	Keys     *key.Map              // nil = the table as it is shipped
	Open     *link.Target          // what to show first; nil = the overview
	Mute     bool                  // no bell until the operator wants it
	Silent   bool                  // no desktop notifications
	Zone     *time.Location        // of the times that are shown; nil = UTC
	// of who sits at the terminal, shown beside the other where they differ; nil = not known
	Local *time.Location
	// GPU-hours that a slowdown below 10 % must have cost to ring; 0 = at once
	Price     float64
	Save      Saver                // where copies and reports are written; nil = nowhere
	SaveNote  string               // why there is no Save
	Recording string               // file that this session is recorded in, for reports
	Recorder  Recorder             // what records it; nil = nothing does
	Themes    themes.Library       // the operator's own over those that ship
	Lag       func() time.Duration // how far a slow link keeps the picture behind; nil = no such link
	Replay    Replay               // what plays the recording that the source is; nil = live
	// what a console of several jobs calls this one; "" = it shows this one only
	Context string

	probe    bool   // ask the terminal for its colours
	NoMouse  bool   // start with the mouse left to the terminal
	Hint     bool   // show the hint of the first start
	HintSeen func() // called once, in a command, when the hint has been seen; may be nil
}

// tickPeriod renews clock and data age.
const tickPeriod = time.Second

// Model is the console's program: it hands messages to the parts that own the
// state, and composes their pictures.
type Model struct {
	src  feed.Source
	opts Options
	now  func() time.Time
	keys *key.Map
	w, h int

	work      *workspace // pages and what they show
	decisions decisions  // the open dialog
	prompt    *commandLine
	help      *helpBox
	output    *outputPane // what a rank's node tells, over the page
	notes     *notes
	hint      hint
	alerts    alert.Notifier
	themes    themePicker
	skin      *skin
	pointer   pointer
	exporter  exporter
	screen    frameCache

	touched      time.Time // the operator's last key
	leaving      bool
	recorderOver bool // that the recording has stopped was said
}

// New makes the program's model; the source stays the caller's to close.
func New(src feed.Source, opts Options) (*Model, error) {
	opts.fill()
	m := &Model{
		src:     src,
		opts:    opts,
		now:     opts.Now,
		keys:    opts.Keys,
		screen:  frameCache{dirty: true},
		alerts:  alert.NewNotifier(opts.Mute, opts.Silent, opts.Price),
		hint:    hint{opts.Hint, opts.HintSeen},
		pointer: pointer{on: !opts.NoMouse},
		exporter: exporter{
			save:      opts.Save,
			why:       opts.SaveNote,
			recording: opts.Recording,
		},
	}
	var err error
	if m.themes, m.skin, err = opts.look(); err != nil {
		return nil, err
	}
	m.notes = &notes{now: m.now}
	m.work = newWorkspace(src, m.keys, m.now, m.notes, opts.Open, opts.Zone)
	m.alerts.Name(opts.Context)
	m.work.context = opts.Context
	m.decisions = decisions{
		src:     src,
		keys:    m.keys,
		notes:   m.notes,
		redraw:  redrawAfter,
		now:     m.now,
		keyTime: m.now,
		guard:   keyguard.New(rand.Uint64()),
	}
	return m, nil
}

// fill sets the clock and the keys where none are given.
func (o *Options) fill() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Keys == nil {
		o.Keys = key.Default()
	}
}

// look is the theme, and how it is drawn on this terminal.
func (o *Options) look() (themePicker, *skin, error) {
	picker, err := newThemePicker(o.Themes, o.Theme)
	if err != nil {
		return picker, nil, err
	}
	profile := colorprofile.TrueColor
	if o.Profile != nil {
		profile = *o.Profile
	}
	return picker, &skin{picker.theme.Palette(profile), o.ASCII}, nil
}

// redrawMargin is how long after the guard a dialog is drawn again.
const redrawMargin = 10 * time.Millisecond

// redrawAfter asks for a new picture after d, when a dialog's buttons come alive.
func redrawAfter(d time.Duration) tea.Cmd {
	return tea.Tick(d, func(time.Time) tea.Msg { return armedMsg{} })
}

type (
	updateMsg struct{ state *feed.State }
	closedMsg struct{}
	tickMsg   struct{}
	armedMsg  struct{}
)

// Init starts waiting for the feed and for the clock.
func (m *Model) Init() tea.Cmd {
	cmds := []tea.Cmd{m.waitForState(), nextTick()}
	if m.opts.Theme == "" {
		cmds = append(cmds, tea.RequestBackgroundColor)
	}
	if m.opts.probe && m.opts.Profile == nil {
		cmds = append(cmds, tea.RequestCapability("RGB"), tea.RequestCapability("Tc"))
	}
	return tea.Batch(cmds...)
}

// waitForState blocks in a command of this program, never in the event loop.
func (m *Model) waitForState() tea.Cmd {
	src, search := m.src, &m.work.search
	return func() tea.Msg {
		select {
		case <-src.Changed():
			s := src.Latest()
			search.prepareState(s) // here, so that the event loop finds it done
			return updateMsg{s}
		case <-src.Done():
			return closedMsg{}
		}
	}
}

func nextTick() tea.Cmd {
	return tea.Tick(tickPeriod, func(time.Time) tea.Msg { return tickMsg{} })
}

// Update handles one message; it does no I/O.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.screen.keepPage = false
	cmd := m.handleMessage(msg)
	if search := m.work.search.startNext(m.work.state.Feed, m.work.live.Chooses()); search != nil {
		cmd = tea.Batch(cmd, search)
	}
	return m, cmd
}

// handleMessage takes a message: of the feed and the clock, of who sits at the
// terminal, or an answer to what was asked for in a command.
func (m *Model) handleMessage(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case updateMsg:
		if cmd := prepareAgain(msg.state, m.work.live.Chooses()); cmd != nil {
			return cmd
		}
		m.updateState(msg.state)
		m.hearRecorder()
		return tea.Batch(m.waitForState(), m.work.openPending(), m.alertIfDue())
	case tickMsg:
		m.screen.keepPage = m.mayKeepPage()
		m.screen.dirty = true
		return tea.Batch(
			nextTick(),
			m.work.fetchAgain(),
			m.alertIfDue(),
			m.themes.watchFile(),
			m.handleGuard(msg),
		)
	case tea.KeyPressMsg:
		m.noteActivity()
		cmd := tea.Batch(m.hint.markSeen(), m.handleKey(msg))
		m.askForData() // others see what is being decided on
		return cmd
	case tea.MouseMsg:
		cmd := m.handleMouse(msg)
		m.askForData()
		return cmd
	case pointedMsg:
		m.handlePointed()
	case tea.PasteMsg:
		m.noteActivity()
		m.pasteText(msg)
	case tea.WindowSizeMsg:
		return m.resizeTo(msg.Width, msg.Height)
	case armedMsg, sentMsg, tea.CursorPositionMsg:
		return m.handleGuard(msg)
	default:
		if cmd, ok := m.handleTerminal(msg); ok {
			return cmd
		}
		return m.handleAnswer(msg)
	}
	return nil
}

// handleTerminal takes what the terminal says of itself.
func (m *Model) handleTerminal(msg tea.Msg) (cmd tea.Cmd, ok bool) {
	switch msg := msg.(type) {
	case tea.EnvMsg:
		if probe := m.alerts.Meet(msg.Getenv); probe != "" {
			cmd = tea.Raw(probe)
		}
	case uv.UnknownOscEvent:
		m.alerts.Probed(string(msg))
	case tea.ColorProfileMsg:
		if m.opts.Profile == nil {
			m.skin.pal, m.screen.dirty = m.themes.theme.Palette(msg.Profile), true
		}
	case tea.BackgroundColorMsg:
		cmd = m.themes.background(msg.IsDark())
	case tea.FocusMsg:
		m.alerts.Focus(true)
		m.src.Blur(false)
	case tea.BlurMsg:
		m.alerts.Focus(false)
		m.src.Blur(true)
	default:
		return nil, false
	}
	return cmd, true
}

// handleAnswer takes what a command has brought.
func (m *Model) handleAnswer(msg tea.Msg) tea.Cmd {
	var (
		role themes.Role
		text string
		cmd  tea.Cmd
	)
	switch msg := msg.(type) {
	case themeMsg:
		role, text = m.themes.takeTheme(msg)
		m.skin.pal = m.themes.theme.Palette(m.skin.pal.Profile)
		m.screen.dirty = m.screen.dirty || text != ""
	case exportedMsg:
		role, text, cmd = m.exporter.exportedNote(msg)
	case oversizeMsg:
		role = themes.Warn
		text = msg.noteText()
	case savedMsg:
		role, text = msg.noteText()
	case incidentMsg:
		role = themes.Warn
		text = m.work.takeFetched(msg)
		m.screen.dirty = true
	case searchedMsg:
		m.work.applySearched()
		m.previewFilter()
		m.screen.dirty = true
	case outputMsg:
		m.output.takeAnswer(msg)
		m.screen.dirty = true
	case answerMsg:
		m.decisions.takeAnswer(msg, m.work.live)
		m.screen.dirty = true
	}
	if text != "" {
		m.notes.showNote(role, text)
		m.screen.dirty = true
	}
	return cmd
}

// updateState takes a new state. Header, bar and dialogs always show it; pages while the display runs.
func (m *Model) updateState(s *feed.State) {
	if !m.mayWaitForTick(s) { // else the next tick draws it
		m.screen.dirty = true
	}
	m.work.live.Update(s)
	if m.notes.checkClaim(m.work.live) {
		m.screen.dirty = true
	}
	m.askForData()
}

// alertIfDue makes itself heard where that is due.
func (m *Model) alertIfDue() tea.Cmd {
	if text := m.alerts.Step(m.now(), m.work.live.Feed); text != "" {
		return tea.Raw(text)
	}
	return nil
}

// askForData has the feed fetch what the present page needs.
func (m *Model) askForData() {
	if m.w > 0 {
		m.src.Ask(m.work.wantedData(m.decisions.dialog.subjectName()))
	}
}

func (m *Model) resizeTo(w, h int) tea.Cmd {
	m.w, m.h = w, h
	m.decisions.w, m.decisions.h = w, h
	m.work.body = widget.Rect{
		X: 0,
		Y: headerRows,
		W: w,
		H: max(0, h-headerRows-barRows-footerRows),
	}
	m.noteActivity()
	m.askForData()
	return m.decisions.watchResized()
}

// View returns the composed screen; bubbletea asks after every message.
func (m *Model) View() tea.View {
	if m.screen.dirty && m.w > 0 && m.h > 0 {
		m.screen.takePicture(m.composeScreen())
	}
	v := tea.NewView(m.screen.cached)
	v.AltScreen = true
	v.ReportFocus = true
	v.Cursor = m.screen.cursor
	v.WindowTitle = m.newBanner().windowTitle()
	if m.pointer.on {
		v.MouseMode = tea.MouseModeCellMotion
	}
	return v
}
