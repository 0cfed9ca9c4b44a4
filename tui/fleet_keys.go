package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/fleet"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/link"
	"github.com/failslow/falcon/tui/widget"
)

// handleInput takes what is typed or clicked on the list.
func (f *Fleet) handleInput(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		return f.handleKey(msg)
	case tea.MouseMsg:
		return f.handleMouse(msg)
	case tea.PasteMsg:
		switch {
		case f.help != nil && f.help.search != nil:
			f.help.takeText(msg)
		case f.prompt != nil:
			f.prompt.writeText(msg)
			f.previewFilter()
		}
	}
	return nil
}

func (f *Fleet) handleKey(k tea.KeyPressMsg) tea.Cmd {
	switch {
	case f.help != nil:
		if f.help.handleKey(k, f.w) {
			f.help = nil
		}
		return nil
	case f.prompt != nil:
		f.promptKey(k)
		return nil
	}
	return f.perform(f.keys.Lookup(k, key.Fleet))
}

func (f *Fleet) perform(a key.Action) tea.Cmd {
	chosen := f.table.Chosen(f.presentRows())
	switch a {
	case key.Open:
		if chosen != nil {
			return f.enterJob(chosen.Name, nil)
		}
	case key.Pick:
		if chosen != nil {
			f.src.Pull(chosen.Name)
		}
	case key.Copy:
		return f.copyJob(chosen)
	case key.Filter:
		f.prompt = newCommandLine(f.keys, "/", f.table.Filter.Text(), f.w)
	case key.Back:
		f.table.Filter = fleet.Filter{}
	case key.ShowHelp:
		if f.w < minWidth || f.h < minHeight {
			f.say(themes.Dim, fmt.Sprintf("enlarge to %d×%d for help", minWidth, minHeight))
			return nil
		}
		f.notes.clearNote()
		f.help = newHelpBox(f.keys, key.Fleet)
		f.help.rest = []key.Scope{key.Prompt, key.Help}
	case key.Theme:
		return f.themes.nextTheme()
	case key.Mouse:
		f.mouse = !f.mouse
	case key.Mute:
		f.toggleMute()
	case key.Quit:
		return tea.Quit
	case key.Next, key.Prev:
		if !f.table.Act(a, f.presentRows(), 0) {
			f.say(themes.Dim, "nothing waits for a person in any job")
		}
	default:
		f.table.Act(a, f.presentRows(), fleet.TableRows(f.body().H))
	}
	return nil
}

// presentRows are the rows now: a key acts on what is known now, and on the job by its name.
func (f *Fleet) presentRows() []fleet.Row {
	return f.table.Rows(f.jobs, f.now())
}

func (f *Fleet) toggleMute() {
	if f.alerts.Mute() {
		f.say(themes.Accent, "the bell is off in this console, for all jobs")
		return
	}
	f.say(themes.Accent, "the bell is on")
}

// promptKey handles a key while a filter is typed.
func (f *Fleet) promptKey(k tea.KeyPressMsg) {
	switch e := f.prompt.handleKey(k); {
	case e.warn != "":
		f.say(themes.Warn, e.warn)
	case e.closed:
		if f.keys.Lookup(k, key.Prompt) == key.Confirm {
			f.table.Filter, _ = fleet.ParseFilter(e.text) // a mistake does not close the line
		}
		f.prompt = nil
	default:
		f.previewFilter()
	}
}

// previewFilter says beside a filter what it would leave.
func (f *Fleet) previewFilter() {
	by, err := fleet.ParseFilter(f.prompt.input.Value())
	f.prompt.mistake = err != nil
	if err != nil {
		f.prompt.note = strings.TrimPrefix(err.Error(), "filter: ")
		return
	}
	t := f.table
	t.Filter = by
	f.prompt.note = fmt.Sprintf("%d of %d jobs", len(t.Rows(f.jobs, f.now())), len(f.jobs))
}

// copyJob copies what is known of a job.
func (f *Fleet) copyJob(r *fleet.Row) tea.Cmd {
	if r == nil {
		f.say(themes.Dim, "there is no job under the cursor to copy")
		return nil
	}
	note, cmd := f.exporter.copyText(
		"what is known of "+r.Name,
		"copied.txt",
		strings.Join(r.Lines(f.now(), f.opts.Zone), "\n")+"\n",
	)
	f.say(themes.Good, note)
	return cmd
}

// handleMouse chooses what is clicked, opens it when clicked again, and turns the wheel.
func (f *Fleet) handleMouse(msg tea.MouseMsg) tea.Cmd {
	at := msg.Mouse()
	if !f.mouse || f.prompt != nil {
		return nil
	}
	switch msg.(type) {
	case tea.MouseWheelMsg:
		notch := map[tea.MouseButton]key.Action{
			tea.MouseWheelUp:   key.Up,
			tea.MouseWheelDown: key.Down,
		}[at.Button]
		if f.help == nil {
			f.table.Act(notch, f.presentRows(), 0)
		} else if notch == key.Up {
			f.help.rollWheel(-1)
		} else {
			f.help.rollWheel(1)
		}
	case tea.MouseClickMsg:
		to := f.targets.At(at.X, at.Y-headerRows)
		if at.Button != tea.MouseLeft ||
			f.help != nil ||
			to.Kind != widget.TargetRow ||
			int(to.N) >= len(f.rows) {
			return nil
		}
		name := f.rows[to.N].Name // as it was drawn: rows may have moved since
		if chosen := f.table.Chosen(f.rows); chosen != nil && chosen.Name == name {
			return f.enterJob(name, nil)
		}
		f.table.Choose(name)
	}
	return nil
}

// elsewhereMsg is a place in another job.
type elsewhereMsg struct{ to link.Target }

// openPending goes where Options.Open points, once the job is known.
func (f *Fleet) openPending() tea.Cmd {
	if f.pending == nil {
		return nil
	}
	to := *f.pending
	if to.Job == "" {
		f.pending = nil
		f.say(themes.Warn, "the link names no job, and several are shown here")
		return nil
	}
	if f.jobNamed(to.Job) == nil {
		return nil // its engine may not have answered yet
	}
	f.pending = nil
	return f.goToJob(to)
}

// jobNamed is the job that a link names: by what this console calls it, else by what its engine
// does, the first that answers.
func (f *Fleet) jobNamed(name string) *fleet.Job {
	var found *fleet.Job
	for _, j := range f.jobs {
		switch {
		case j.Name == name:
			return j
		case found == nil &&
			j.State.Conn == feed.Live &&
			j.State.Snap.GetJob().GetName() == name:
			found = j
		}
	}
	return found
}

// goToJob shows a place in a job.
func (f *Fleet) goToJob(to link.Target) tea.Cmd {
	j := f.jobNamed(to.Job)
	if j == nil {
		text := "no job here is called " + to.Job
		f.say(themes.Warn, text)
		if f.visit != nil {
			f.visit.model.notes.showNote(themes.Warn, text)
		}
		return nil
	}
	var left tea.Cmd
	if f.visit != nil {
		left = f.leaveVisited()
	}
	to.Job = ""
	return tea.Batch(left, f.enterJob(j.Name, &to))
}

// savePrefixed puts the job's name before that of each file.
func savePrefixed(save Saver, job string) Saver {
	if save == nil {
		return nil
	}
	safe := strings.Map(func(r rune) rune {
		if r < 128 &&
			(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-') {
			return r
		}
		return '-'
	}, job)
	return func(name string, data []byte) (string, error) {
		return save(strings.TrimLeft(safe, ".-")+"-"+name, data)
	}
}
