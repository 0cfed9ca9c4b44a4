package tui

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	tea "charm.land/bubbletea/v2"
	uv "github.com/charmbracelet/ultraviolet"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/alert"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/fleet"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/link"
	"github.com/failslow/falcon/tui/widget"
)

// FleetSource is what a console of several jobs needs of a fleet.
type FleetSource interface {
	Jobs() []*fleet.Job
	Changed() <-chan struct{}
	Done() <-chan struct{}
	Blur(away bool)
	Pull(name string)
	Open(name string) (src feed.Source, closeIt func(), err error)
}

// Fleet is the program of a console of several jobs: the list of them, and the console of the
// one that is visited. That is a Model of its own, with a connection of its own, created again at
// each visit: what is asked there is answered there, and a dialog ends with the visit. What a
// command of it brings comes back with the number of the visit, and is dropped after it.
type Fleet struct {
	src  FleetSource
	opts Options
	now  func() time.Time
	keys *key.Map
	w, h int

	jobs   []*fleet.Job
	rows   []fleet.Row // as drawn last
	sum    fleet.Sum   // of all
	table  fleet.Table
	visit  *visit // nil = the list is shown
	visits int

	prompt   *commandLine
	help     *helpBox
	notes    *notes
	alerts   alert.Notifier
	themes   themePicker
	skin     *skin
	exporter exporter
	mouse    bool
	targets  widget.Targets
	screen   frameCache
	terminal terminalSays
	pending  *link.Target
}

// visit is the console of one job, while it is open.
type visit struct {
	number int
	name   string
	model  *Model
	close  func()
}

// terminalSays is what the terminal has said of itself, for consoles that are opened later.
type terminalSays struct{ env, profile, background tea.Msg }

// jobMsg is what a command of a visited job's console has brought.
type jobMsg struct {
	visit int
	msg   tea.Msg
}

type (
	jobsMsg      struct{} // the fleet has changed
	fleetTickMsg struct{}
	leaveMsg     struct{} // back to the list
)

// leaveJob goes back to the list of jobs.
func leaveJob(m *Model) tea.Cmd {
	if m.opts.Context == "" {
		m.notes.showNote(themes.Dim, "this console shows one job; falcon console --all shows all of them")
		return nil
	}
	return func() tea.Msg { return leaveMsg{} }
}

// NewFleet makes the program's model; the source stays the caller's to close.
func NewFleet(src FleetSource, opts Options) (*Fleet, error) {
	opts.fill()
	f := &Fleet{
		src:      src,
		opts:     opts,
		now:      opts.Now,
		keys:     opts.Keys,
		screen:   frameCache{dirty: true},
		mouse:    !opts.NoMouse,
		pending:  opts.Open,
		alerts:   alert.NewNotifier(opts.Mute, opts.Silent, opts.Price),
		exporter: exporter{save: opts.Save, why: opts.SaveNote},
	}
	var err error
	if f.themes, f.skin, err = opts.look(); err != nil {
		return nil, err
	}
	f.notes = &notes{now: f.now}
	f.jobs = src.Jobs()
	return f, nil
}

// RunFleet runs a console of several jobs until the operator leaves or ctx ends.
func RunFleet(ctx context.Context, src FleetSource, t Terminal, opts Options) error {
	f, err := NewFleet(src, opts)
	if err != nil {
		return err
	}
	err = runLocal(ctx, f, t)
	if f.visit != nil {
		f.visit.close()
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrTerminal, err)
}

// Init starts waiting for the fleet and for the clock.
func (f *Fleet) Init() tea.Cmd {
	cmds := []tea.Cmd{f.waitForJobs(0), nextFleetTick()}
	if f.opts.Theme == "" {
		cmds = append(cmds, tea.RequestBackgroundColor)
	}
	return tea.Batch(cmds...)
}

// fleetPeriod is the least time between two pictures of the list that were not asked for: 100
// engines answer 50 times a second.
const fleetPeriod = 200 * time.Millisecond

// waitForJobs waits, in a command, for something to have changed, and before that for d.
func (f *Fleet) waitForJobs(d time.Duration) tea.Cmd {
	src := f.src
	return func() tea.Msg {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-src.Done():
			return nil
		}
		select {
		case <-src.Changed():
			return jobsMsg{}
		case <-src.Done():
			return nil
		}
	}
}

func nextFleetTick() tea.Cmd {
	return tea.Tick(tickPeriod, func(time.Time) tea.Msg { return fleetTickMsg{} })
}

// Update handles one message; it does no I/O.
func (f *Fleet) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case jobMsg:
		if f.visit == nil || msg.visit != f.visit.number {
			return f, nil // of a console that was left
		}
		return f, f.tellVisited(msg.msg)
	case jobsMsg:
		f.jobs, f.screen.dirty = f.src.Jobs(), true
		return f, tea.Batch(
			f.waitForJobs(fleetPeriod),
			f.alertIfDue(),
			f.openPending(),
		)
	case fleetTickMsg:
		f.screen.dirty = true
		return f, tea.Batch(nextFleetTick(), f.alertIfDue(), f.themes.watchFile())
	case themeMsg:
		role, text := f.themes.takeTheme(msg)
		f.skin.pal = f.themes.theme.Palette(f.skin.pal.Profile)
		f.say(role, text)
		return f, nil
	case oversizeMsg:
		if f.visit == nil {
			f.say(themes.Warn, msg.noteText())
			return f, nil
		}
		return f, f.tellVisited(msg)
	case savedMsg:
		f.say(msg.noteText())
		return f, nil
	case tea.KeyPressMsg, tea.MouseMsg, tea.PasteMsg:
		if f.visit != nil {
			return f, f.tellVisited(msg)
		}
		f.screen.dirty = true
		return f, f.handleInput(msg)
	}
	cmd := f.handleTerminal(msg)
	if f.visit != nil {
		cmd = tea.Batch(cmd, f.tellVisited(msg))
	}
	return f, cmd
}

// say shows a passing message, if there is one.
func (f *Fleet) say(role themes.Role, text string) {
	if text != "" {
		f.notes.showNote(role, text)
		f.screen.dirty = true
	}
}

// tellVisited gives a message to the console that is visited.
func (f *Fleet) tellVisited(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case leaveMsg:
		return f.leaveVisited()
	case elsewhereMsg:
		return f.goToJob(msg.to)
	}
	_, cmd := f.visit.model.Update(msg)
	return ofVisit(f.visit.number, cmd)
}

// ofVisit lets what a command brings come back as a visit's own.
func ofVisit(number int, cmd tea.Cmd) tea.Cmd {
	if cmd == nil {
		return nil
	}
	return func() tea.Msg { return signWith(number, cmd()) }
}

// librarys is the package of the messages that the library itself handles.
var librarys = reflect.TypeFor[tea.QuitMsg]().PkgPath()

// signWith marks a message with the visit that it belongs to. Those of the library are for the
// program: they write to the terminal, and end it.
func signWith(number int, msg tea.Msg) tea.Msg {
	switch msg := msg.(type) {
	case nil:
		return nil
	case tea.BatchMsg:
		out := make(tea.BatchMsg, len(msg))
		for i, cmd := range msg {
			out[i] = ofVisit(number, cmd)
		}
		return out
	}
	if reflect.TypeOf(msg).PkgPath() == librarys {
		return msg
	}
	return jobMsg{number, msg}
}

// handleTerminal takes what the terminal says of itself, and keeps it for consoles to come.
func (f *Fleet) handleTerminal(msg tea.Msg) (cmd tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		f.w, f.h = msg.Width, msg.Height
	case tea.EnvMsg:
		f.terminal.env = msg
		if probe := f.alerts.Meet(msg.Getenv); probe != "" {
			cmd = tea.Raw(probe)
		}
	case uv.UnknownOscEvent:
		f.alerts.Probed(string(msg))
	case tea.ColorProfileMsg:
		f.terminal.profile = msg
		if f.opts.Profile == nil {
			f.skin.pal = f.themes.theme.Palette(msg.Profile)
		}
	case tea.BackgroundColorMsg:
		f.terminal.background = msg
		cmd = f.themes.background(msg.IsDark())
	case tea.FocusMsg:
		f.alerts.Focus(true)
		f.src.Blur(false)
	case tea.BlurMsg:
		f.alerts.Focus(false)
		f.src.Blur(true)
	}
	f.screen.dirty = true
	return cmd
}

// enterJob opens a job's own console.
func (f *Fleet) enterJob(name string, to *link.Target) tea.Cmd {
	src, closeIt, err := f.src.Open(name)
	if err != nil {
		f.say(themes.Warn, name+" can't be opened: "+err.Error())
		return nil
	}
	opts := f.opts
	opts.Context = name
	opts.Open = to
	opts.Mute = f.alerts.Muted()
	opts.NoMouse = !f.mouse
	opts.Theme = f.themes.theme.Name
	opts.Save = savePrefixed(f.opts.Save, name)
	m, err := New(src, opts)
	if err != nil {
		f.say(themes.Warn, name+" can't be opened: "+err.Error())
		return func() tea.Msg {
			closeIt()
			return nil
		}
	}
	f.opts.Hint = false // it is the first start's
	f.visits++
	f.visit = &visit{f.visits, name, m, closeIt}
	f.table.Choose(name)
	cmds := []tea.Cmd{ofVisit(f.visits, m.Init())}
	for _, msg := range []tea.Msg{
		tea.WindowSizeMsg{Width: f.w, Height: f.h},
		f.terminal.env,
		f.terminal.profile,
		f.terminal.background,
	} {
		if msg != nil {
			cmds = append(cmds, f.tellVisited(msg))
		}
	}
	return tea.Batch(cmds...)
}

// leaveVisited goes back to the list. What the operator has set for the console stays set.
func (f *Fleet) leaveVisited() tea.Cmd {
	v := f.visit
	f.visit, f.screen.dirty = nil, true
	f.mouse = v.model.pointer.on
	if f.alerts.Muted() != v.model.alerts.Muted() {
		f.alerts.Mute()
	}
	f.jobs = f.src.Jobs()
	cmds := []tea.Cmd{func() tea.Msg {
		v.close()
		return nil
	}}
	if name := v.model.themes.theme.Name; name != f.themes.theme.Name {
		cmds = append(cmds, f.themes.chooseTheme(name))
	}
	return tea.Batch(cmds...)
}

// alertIfDue makes itself heard for any job but the one that is visited, whose console does.
func (f *Fleet) alertIfDue() tea.Cmd {
	visited := ""
	if f.visit != nil {
		visited = f.visit.name
	}
	jobs := make([]alert.OfJob, len(f.jobs))
	for i, j := range f.jobs {
		jobs[i] = alert.OfJob{
			Name:  j.Name,
			State: j.State,
			Quiet: j.Name == visited,
		}
	}
	if text := f.alerts.StepJobs(f.now(), jobs); text != "" {
		return tea.Raw(text)
	}
	return nil
}

// View returns the list, or the console of the job that is visited.
func (f *Fleet) View() tea.View {
	if f.visit != nil {
		return f.visit.model.View()
	}
	if f.screen.dirty && f.w > 0 && f.h > 0 {
		f.screen.takePicture(f.composeFleet())
	}
	v := tea.NewView(f.screen.cached)
	v.AltScreen = true
	v.ReportFocus = true
	v.Cursor = f.screen.cursor
	v.WindowTitle = f.windowTitle()
	if f.mouse {
		v.MouseMode = tea.MouseModeCellMotion
	}
	return v
}
