// Package tui is Falcon's console: a router over pages, with fixed header,
// proposal bar and footer, dialogs, and a prompt.
//
// It is a client of the engine's Console service and holds no truth: every
// picture comes from the feed, and a decision is only submitted, with the
// action, plan hash and job epoch that the operator saw. Update does no I/O
// and never blocks; calls run in commands that belong to this program alone,
// so that a stalled terminal holds nobody else up. View returns a cached
// string until something has changed.
//
// Pages draw on a canvas of cells (package widget says why). All else is the
// libraries': rows and frames are lipgloss styles, what lies over a page is a
// layer that lipgloss composes, panes that scroll are viewports, text entries
// are textinputs, and the footer is the help bubble, fed by the key table.
package tui

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	uv "github.com/charmbracelet/ultraviolet"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/link"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/events"
	"github.com/failslow/falcon/tui/page/grid"
	"github.com/failslow/falcon/tui/page/ladder"
	"github.com/failslow/falcon/tui/page/overview"
	"github.com/failslow/falcon/tui/page/posterior"
	"github.com/failslow/falcon/tui/page/ranks"
	"github.com/failslow/falcon/tui/page/recovery"
	"github.com/failslow/falcon/tui/page/validate"
	"github.com/failslow/falcon/tui/widget"
)

// Source is what the console needs of a feed.
type Source interface {
	Latest() *feed.State
	Changed() <-chan struct{}
	Done() <-chan struct{}
	Ask(feed.Want)
	Blur(bool)
	Decide(context.Context, *falconv1.DecideRequest) (*falconv1.Action, error)
	Validate(context.Context, *falconv1.ValidateRequest) (*falconv1.Validation, error)
	SetPolicy(context.Context, *falconv1.Policy) (*falconv1.Policy, error)
	Freeze(context.Context) (*falconv1.Policy, error)
	Recover(context.Context, *falconv1.RecoverRequest) (*falconv1.Recovery, error)
	Incidents(ctx context.Context, id string) (*falconv1.IncidentsReply, error)
}

// Options shape one console.
type Options struct {
	Theme     string                // "" = by the terminal's background
	ASCII     bool                  // draw with ASCII only
	Profile   *colorprofile.Profile // nil = what the terminal can show
	Now       func() time.Time      // nil = the real clock
	QuitNote  string                // what else ends with the console; asks before leaving
	Keys      *key.Map              // nil = the table as it is shipped
	Open      *link.Target          // what to show first; nil = the overview
	Mute      bool                  // no bell until the operator wants it
	Silent    bool                  // no desktop notifications
	Save      Saver                 // where copies and reports are written; nil = nowhere
	SaveNote  string                // why there is no Save
	Recording string                // file that this session is recorded in, for reports
	Recorder  Recorder              // what records it; nil = nothing does
	Themes    themes.Library        // the operator's own over those that ship
	Lag       func() time.Duration  // how far a slow link keeps the picture behind; nil = no such link
	Replay    Replay                // what plays the recording that the source is; nil = live

	probe    bool   // ask the terminal for its colours
	NoMouse  bool   // start with the mouse left to the terminal
	Hint     bool   // show the hint of the first start
	HintSeen func() // called once, in a command, when the hint has been seen; may be nil
}

// toastLife is how long a passing message stays.
const toastLife = 6 * time.Second

// tickPeriod renews clock and data age.
const tickPeriod = time.Second

// Model is the console's program.
type Model struct {
	src  Source
	opts Options
	now  func() time.Time

	table    *key.Map
	state    *page.State // what pages draw; behind live while paused
	live     *page.State // what header, bar and dialogs draw
	pausedAt time.Time   // zero while the display runs
	pages    map[key.Scope]page.Page
	current  key.Scope
	previous key.Scope
	trail    []key.Scope       // the way back, oldest first
	zoomed   map[key.Scope]int // the pane that fills a page, counted from 1
	marks    marks
	w, h     int

	theme       *themes.Theme
	stamp       themes.Stamp // of the file that theme was read from
	watching    bool         // a look at that file is under way
	skin        *skin
	dialog      *dialog
	prompt      *prompt
	help        *helpBox
	toast       toast
	ears        ears
	look        *browsing                   // nil = the present incident
	pending     *link.Target                // where to go once there is something to see
	redrawAfter func(time.Duration) tea.Cmd // redraw; tests have no use for it

	hinting  bool // the hint of the first start is shown
	mouseOn  bool
	pointing pointing
	targets  widget.Targets // what the page stands for, as last drawn
	zones    []zone         // what can be clicked around it
	lists    *listZone      // the palette's lines

	hunt   hunt
	opened int                  // numbers dialogs, so that a late answer finds its own
	begun  *falconv1.Validation // the engine's newest answer to a test; a snapshot may come after it

	touched time.Time // the operator's last key

	cached  string
	page    string    // the page within it
	paged   time.Time // when that was drawn
	keep    bool      // the page may stay as it is
	cursor  *tea.Cursor
	dirty   bool
	drawn   int // frames composed, for tests and benchmarks
	leaving bool

	recorderOver bool // that the recording has stopped was said
}

type toast struct {
	text string
	role themes.Role
	till time.Time
}

// New makes the program's model; the source stays the caller's to close.
func New(src Source, opts Options) (*Model, error) {
	m := &Model{
		src: src, opts: opts, now: opts.Now, table: opts.Keys, current: key.Overview, previous: key.Overview,
		dirty: true, redrawAfter: redraw, pending: opts.Open, ears: ears{muted: opts.Mute, silent: opts.Silent},
		zoomed: map[key.Scope]int{}, mouseOn: !opts.NoMouse, hinting: opts.Hint,
	}
	if m.now == nil {
		m.now = time.Now
	}
	if m.table == nil {
		m.table = key.Default()
	}
	name := opts.Theme
	if name == "" {
		name = themes.Default
	}
	theme, stamp, err := opts.Themes.Load(name)
	if err != nil {
		return nil, err
	}
	m.theme, m.stamp = theme, stamp
	profile := colorprofile.TrueColor
	if opts.Profile != nil {
		profile = *opts.Profile
	}
	m.skin = &skin{theme.Palette(profile), opts.ASCII}
	m.pages = map[key.Scope]page.Page{
		key.Overview: overview.New(), key.Ranks: ranks.New(), key.Grid: grid.New(),
		key.Posterior: posterior.New(), key.Ladder: ladder.New(), key.Validate: validate.New(), key.Recovery: recovery.New(), key.Events: events.New(),
	}
	m.live = page.NewState(src.Latest())
	m.live.Keys = m.table
	m.state = m.live
	return m, nil
}

// redrawMargin is how long after the guard a dialog is drawn again.
const redrawMargin = 10 * time.Millisecond

// redraw asks for a new picture after d, when a dialog's buttons come alive.
func redraw(d time.Duration) tea.Cmd {
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
	cmds := []tea.Cmd{m.wait(), tick()}
	if m.opts.Theme == "" {
		cmds = append(cmds, tea.RequestBackgroundColor)
	}
	if m.opts.probe && m.opts.Profile == nil {
		cmds = append(cmds, tea.RequestCapability("RGB"), tea.RequestCapability("Tc"))
	}
	return tea.Batch(cmds...)
}

// wait blocks in a command of this program, never in the event loop.
func (m *Model) wait() tea.Cmd {
	return func() tea.Msg {
		select {
		case <-m.src.Changed():
			s := m.src.Latest()
			m.prepare(s) // here, so that the event loop finds it done
			return updateMsg{s}
		case <-m.src.Done():
			return closedMsg{}
		}
	}
}

func tick() tea.Cmd {
	return tea.Tick(tickPeriod, func(time.Time) tea.Msg { return tickMsg{} })
}

// Update handles one message; it does no I/O.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	_, cmd := m.handle(msg)
	if seek := m.seekNext(); seek != nil {
		return m, tea.Batch(cmd, seek)
	}
	return m, cmd
}

func (m *Model) handle(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.keep = false
	switch msg := msg.(type) {
	case updateMsg:
		if cmd := m.again(msg.state); cmd != nil {
			return m, cmd
		}
		m.update(msg.state)
		m.hearRecorder()
		return m, tea.Batch(m.wait(), m.arrive(), m.alert())
	case tickMsg:
		m.keep = m.restful()
		m.dirty = true
		return m, tea.Batch(tick(), m.renew(), m.alert(), m.watchTheme())
	case tea.EnvMsg:
		return m, m.meet(msg)
	case uv.UnknownOscEvent:
		m.probed(msg)
	case themeMsg:
		m.themed(msg)
	case exportedMsg:
		return m, m.exported(msg)
	case savedMsg:
		m.saved(msg)
	case incidentMsg:
		m.fetched(msg)
	case soughtMsg:
		m.sought()
	case armedMsg:
		m.dirty = true
	case tea.KeyPressMsg:
		m.touch()
		cmd := tea.Batch(m.seeHint(), m.key(msg))
		m.ask() // others see what is being decided on
		return m, cmd
	case tea.MouseMsg:
		cmd := m.mouse(msg)
		m.ask()
		return m, cmd
	case pointedMsg:
		m.pointed()
	case tea.PasteMsg:
		m.touch()
		m.paste(msg)
	case tea.WindowSizeMsg:
		m.w, m.h = msg.Width, msg.Height
		m.touch()
		m.ask()
	case tea.ColorProfileMsg:
		m.profile(msg.Profile)
	case tea.BackgroundColorMsg:
		return m, m.background(msg.IsDark())
	case tea.FocusMsg:
		m.ears.away = false
		m.src.Blur(false)
	case tea.BlurMsg:
		m.ears.away = true
		m.src.Blur(true)
	case answerMsg:
		m.answered(msg)
	}
	return m, nil
}

// update takes a new state over. Header, bar and dialogs always show it; the
// pages only while the display runs.
func (m *Model) update(s *feed.State) {
	if !m.calm(s) { // else the next tick draws it
		m.dirty = true
	}
	m.live.Update(s)
	m.ask()
}

// ask tells the feed what the present page needs.
func (m *Model) ask() {
	if m.w == 0 {
		return
	}
	columns, lengths := m.pages[m.current].Want(m.body())
	m.src.Ask(feed.Want{Rank: m.live.Wanted(), Columns: int32(columns), RunLengths: int32(lengths), Recoveries: m.current == key.Recovery, Tests: m.current == key.Validate, Attending: m.dialog.subject()})
}

func (m *Model) profile(p colorprofile.Profile) {
	if m.opts.Profile == nil {
		m.skin.pal, m.dirty = m.theme.Palette(p), true
	}
}

func (m *Model) background(dark bool) tea.Cmd {
	if m.opts.Theme == "" && !dark && m.theme.Name == themes.Default {
		return m.setTheme("light")
	}
	return nil
}

// say shows a passing message in the footer.
func (m *Model) say(role themes.Role, text string) {
	m.toast = toast{text, role, m.now().Add(toastLife)}
	m.dirty = true
}

// View returns the composed screen; bubbletea asks after every message.
func (m *Model) View() tea.View {
	if m.dirty && m.w > 0 && m.h > 0 {
		m.cached, m.cursor = m.compose()
		m.dirty = false
		m.drawn++
	}
	v := tea.NewView(m.cached)
	v.AltScreen = true
	v.ReportFocus = true
	v.Cursor = m.cursor
	v.WindowTitle = m.banner().title()
	if m.mouseOn {
		v.MouseMode = tea.MouseModeCellMotion
	}
	return v
}

// body is where the page is drawn.
func (m *Model) body() widget.Rect {
	return widget.Rect{X: 0, Y: headerRows, W: m.w, H: max(0, m.h-headerRows-barRows-footerRows)}
}
