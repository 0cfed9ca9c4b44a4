package tui

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/page/recovery"
	"github.com/failslow/falcon/tui/report"
	"github.com/failslow/falcon/tui/roster"
	"github.com/failslow/falcon/tui/widget"
)

// outputLines is how many lines of each source the pane asks for.
const outputLines = 100

// outputKinds are what the pane shows in turn, with their titles.
var outputKinds = []struct{ what, title string }{
	{"log", "OUTPUT"}, {"kernel", "KERNEL"}, {"stack", "STACK"},
}

// outputPane lies over the page and shows what a rank's node tells of it: one request at a
// time, each made by a key. Nothing is asked for again by itself.
type outputPane struct {
	searchPane

	src       feed.Source
	zone      *time.Location
	rank      int32
	node      string
	kind      int // index of outputKinds
	asked     int // number of the newest request
	waiting   bool
	got       *report.Peek // nil = nothing came
	failed    string       // why
	mayInsist bool         // and that a key has it read all the same
	toEnd     bool         // show the newest lines first
}

// withSure is how a refusal names the flag of the command line; here a key does the same.
const withSure = ": ask with --sure to read its stack all the same"

// outputMsg is what came of a request.
type outputMsg struct {
	pane  *outputPane
	asked int
	got   report.Peek
	err   error
}

// openOutput shows what the rank at hand has printed.
func openOutput(m *Model) tea.Cmd {
	s := m.work.state
	rank := outputRank(m.work)
	if int(rank) >= s.Roster.World() || rank < 0 {
		m.notes.showNote(themes.Dim, "there is no rank here")
		return nil
	}
	return openOutputOf(m, rank)
}

func openOutputOf(m *Model, rank int32) tea.Cmd {
	m.notes.clearNote() // its row shows how to leave
	m.output = &outputPane{
		searchPane: newSearchPane(m.keys),
		src:        m.src,
		zone:       m.work.state.Zone,
		rank:       rank,
		node:       roster.NodeOf(m.work.state.Roster.View(rank).GetDevice()),
	}
	return m.output.request(false)
}

// outputRank is the rank under the cursor, on the incident's pages the first that is named.
func outputRank(v *workspace) int32 {
	switch v.current {
	case key.Recovery:
		if at, ok := v.pages[key.Recovery].(*recovery.Page); ok {
			return at.Rank(v.state)
		}
	case key.Overview, key.Ladder:
		if named := v.drawnState(v.current).NamedRank(); named >= 0 {
			return named
		}
	}
	return v.state.Rank()
}

// request asks the node's agent; sure also where the rank does not stand still.
func (o *outputPane) request(sure bool) tea.Cmd {
	o.asked++
	o.waiting = true
	o.got = nil
	o.failed = ""
	o.pane.GotoTop()
	what := outputKinds[o.kind].what
	n := o.asked
	src := o.src
	q := &falconv1.PeekRequest{
		What:  what,
		Rank:  o.rank,
		Lines: outputLines,
		Sure:  sure,
	}
	if what == "kernel" {
		q.Rank, q.Node = 0, o.node
	}
	return func() tea.Msg {
		r, err := src.Peek(context.Background(), q)
		if err != nil {
			return outputMsg{pane: o, asked: n, err: err}
		}
		return outputMsg{pane: o, asked: n, got: report.PeekOf(what, r)}
	}
}

// takeAnswer shows what came, unless something else was asked for since.
func (o *outputPane) takeAnswer(msg outputMsg) {
	if o == nil || o != msg.pane || o.asked != msg.asked {
		return
	}
	o.waiting = false
	if msg.err != nil {
		o.failed = strings.Replace(feed.Said(msg.err), withSure, "", 1)
		o.mayInsist = o.failed != feed.Said(msg.err)
		return
	}
	o.got, o.toEnd = &msg.got, outputKinds[o.kind].what == "log"
}

// handleKey handles a key on a screen of w columns; closed says to take the pane away.
func (o *outputPane) handleKey(k tea.KeyPressMsg, x exporter, w int) (cmd tea.Cmd, note string, closed bool) {
	if o.search != nil {
		o.searchKey(k)
		return nil, "", false
	}
	switch a := o.table.Lookup(k, key.Output); a {
	case key.Next:
		o.kind = (o.kind + 1) % len(outputKinds)
		cmd = o.request(false)
	case key.Again:
		cmd = o.request(false)
	case key.Anyway:
		if outputKinds[o.kind].what == "stack" && o.failed != "" {
			cmd = o.request(true)
		}
	case key.Copy:
		note, cmd = o.copyLines(x)
	case key.Export:
		note, cmd = o.exportLines(x)
	default:
		closed = o.act(a, w)
	}
	return cmd, note, closed
}

// fileName is what a copy or an export of these lines is called.
func (o *outputPane) fileName() string {
	what := outputKinds[o.kind].what
	if what == "kernel" {
		return "kernel.txt"
	}
	return fmt.Sprintf("rank-%d-%s.txt", o.rank, what)
}

func (o *outputPane) copyLines(x exporter) (string, tea.Cmd) {
	if o.got == nil {
		return "there are no lines to copy", nil
	}
	x.save = nil // what is copied is written nowhere: it may hold secrets
	return x.copyText("the lines", o.fileName(), o.got.Text())
}

func (o *outputPane) exportLines(x exporter) (string, tea.Cmd) {
	if o.got == nil || x.save == nil {
		return "there is nothing to write, or nowhere to write it", nil
	}
	name, text, save := o.fileName(), []byte(o.got.Text()), x.save
	return "writing " + name + " …", func() tea.Msg {
		path, err := save(name, text)
		return savedMsg{"the lines were written", path, err}
	}
}

// lines are the pane's content in w columns.
func (o *outputPane) lines(w int) []page.Line {
	switch {
	case o.waiting:
		return []page.Line{{
			Text: "asking the agent of " + o.node + " …",
			Role: themes.Dim,
		}}
	case o.failed != "":
		out := wrapLines(themes.Warn, o.failed, w)
		if outputKinds[o.kind].what == "stack" && o.mayInsist {
			out = append(out, wrapLines(
				themes.Dim,
				o.table.Name(key.Anyway, key.Output)+" asks all the same.",
				w,
			)...)
		}
		return out
	case o.got == nil:
		return nil
	}
	var out []page.Line
	for i, p := range o.got.Parts {
		if i > 0 {
			out = append(out, page.Line{})
		}
		out = append(out, wrapLines(themes.Title, p.Head(o.zone), w)...)
		out = append(out, o.partLines(p, w)...)
	}
	if len(out) == 0 {
		out = wrapLines(themes.Dim, "The agent has nothing to show.", w)
	}
	return out
}

func (o *outputPane) partLines(p report.PeekPart, w int) []page.Line {
	var out []page.Line
	held := 0
	for _, l := range p.Lines {
		if !strings.Contains(strings.ToLower(l), strings.ToLower(o.wanted)) {
			continue
		}
		held++
		for piece := range strings.SplitSeq(ansi.Hardwrap(l, max(10, w-2), true), "\n") {
			out = append(out, page.Line{Text: "  " + piece, Role: themes.Text})
		}
	}
	if held == 0 && len(p.Lines) > 0 {
		out = append(out, page.Line{
			Text: fmt.Sprintf("  none of %d lines holds %q", len(p.Lines), o.wanted),
			Role: themes.Dim,
		})
	}
	return out
}

func (o *outputPane) title() string {
	t := outputKinds[o.kind].title
	if o.wanted != "" {
		t += " with " + o.wanted
	}
	switch {
	case outputKinds[o.kind].what == "kernel":
		return t + "  node " + o.node
	case o.got != nil:
		return t + "  " + o.got.Title()
	}
	return fmt.Sprintf("%s  rank %d on %s", t, o.rank, o.node)
}

// drawOver draws the pane over the page, as large as that.
func (o *outputPane) drawOver(s *skin, over widget.Rect) *lipgloss.Layer {
	w := max(10, over.W-2)
	box := widget.Centre(over, w, over.H)
	lines := o.lines(box.W - 4)
	rows := s.scrolledRows(&o.pane, lines, box.W-4, box.H-2)
	if o.toEnd {
		o.toEnd = false
		o.pane.GotoBottom()
		rows = s.scrolledRows(&o.pane, lines, box.W-4, box.H-2)
	}
	return s.framedLayer(
		box,
		widget.Cut(o.title(), box.W-8),
		moreBelow(&o.pane, o.table.Name(key.Down, key.Output)+" ↓"),
		themes.Accent,
		rows,
	)
}

// outputFooter are the keys that the footer shows: asking all the same only where that is refused.
func (o *outputPane) outputFooter() []key.Binding {
	return slices.DeleteFunc(o.table.Footer(key.Output), func(b key.Binding) bool {
		return b.Action == key.Anyway && (o.failed == "" || outputKinds[o.kind].what != "stack")
	})
}

// outputKey gives a key to the pane.
func outputKey(m *Model, k tea.KeyPressMsg) tea.Cmd {
	cmd, note, closed := m.output.handleKey(k, m.exporter, m.w)
	if closed {
		m.output = nil
	}
	if note != "" {
		m.notes.showNote(themes.Accent, note)
	}
	return cmd
}
