package tui

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/decision"
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
	"github.com/failslow/falcon/tui/page/spare"
	"github.com/failslow/falcon/tui/page/validate"
	"github.com/failslow/falcon/tui/widget"
)

// maxTrail bounds how many views back one can go.
const maxTrail = 50

// workspace owns what the operator looks at: the pages and which is shown, the
// states that they draw, what is chosen and filtered there, and the way back.
// Nothing here decides or draws around the page.
type workspace struct {
	display
	src   feed.Source
	keys  *key.Map
	now   func() time.Time
	notes *notes
	body  widget.Rect // where the page is drawn

	pages    map[key.Scope]page.Page
	current  key.Scope
	previous key.Scope
	trail    []key.Scope       // the way back, oldest first
	zoomed   map[key.Scope]int // the pane that fills a page, counted from 1
	search   rankSearch
	marks    marks
	pending  *link.Target // where to go once there is something to see
	context  string       // Options.Context
}

func newWorkspace(
	src feed.Source,
	keys *key.Map,
	now func() time.Time,
	say *notes,
	open *link.Target,
	zone *time.Location,
) *workspace {
	return &workspace{
		display:  newDisplay(src.Latest(), keys, zone),
		src:      src,
		keys:     keys,
		now:      now,
		notes:    say,
		pending:  open,
		current:  key.Overview,
		previous: key.Overview,
		zoomed:   map[key.Scope]int{},
		pages: map[key.Scope]page.Page{
			key.Overview:  overview.New(),
			key.Ranks:     ranks.New(),
			key.Grid:      grid.New(),
			key.Posterior: posterior.New(),
			key.Ladder:    ladder.New(),
			key.Validate:  validate.New(),
			key.Recovery:  recovery.New(),
			key.Events:    events.New(),
		},
	}
}

func (v *workspace) showNote(role themes.Role, text string) {
	v.notes.showNote(role, text)
}

// wantedData is what the present page needs of the feed.
func (v *workspace) wantedData(attending string) feed.Want {
	columns, lengths := v.pages[v.current].Want(v.body)
	if fillable[v.current] {
		columns = max(columns, spare.Columns(v.body))
	}
	near, tests := v.wantedNear()
	return feed.Want{
		Rank:       v.live.Wanted(),
		Columns:    int32(columns),
		RunLengths: int32(lengths),
		Recent:     int32(near),
		Recoveries: v.current == key.Recovery || v.current == key.Overview && overview.IsLarge(v.body),
		Tests:      tests || v.current == key.Validate,
		History:    v.showsHistory(),
		Attending:  attending,
	}
}

// wantedNear is what the present page shows of every rank: newest iterations, and past tests.
func (v *workspace) wantedNear() (iterations int, tests bool) {
	if p, ok := v.pages[v.current].(page.Near); ok {
		return p.Near(v.live)
	}
	return 0, false
}

// showsHistory reports whether the history is on screen.
func (v *workspace) showsHistory() bool {
	p, ok := v.pages[v.current].(*events.Page)
	return ok && p.WantsHistory()
}

// operatorFor is who decides at this console, and what they see; asked is the
// incident of the open dialog.
func (v *workspace) operatorFor(asked string, replay bool) decision.Operator {
	unseen := ""
	if showsIncident(v.current) {
		unseen = v.readOnlyReason()
	}
	return decision.Operator{
		Live:     v.live,
		Subject:  v.subjectState(asked),
		At:       v.awaitedState(asked),
		Replay:   replay,
		Unseen:   unseen,
		ReadOnly: v.readOnlyReason(),
		Others:   v.waitingElse(asked),
	}
}

// showPage opens a page, and remembers the way back.
func (v *workspace) showPage(to key.Scope) {
	if to != v.current {
		v.trail = append(v.trail, v.current)
		v.trail = v.trail[max(0, len(v.trail)-maxTrail):]
		v.previous = v.current
		v.current = to
	}
}

// turnPage opens the next (+1) or previous (-1) page.
func (v *workspace) turnPage(by int) {
	n := len(key.Pages)
	v.showPage(key.Pages[(slices.Index(key.Pages, v.current)+by+n)%n])
}

// goBack undoes the last of: a pane that fills the page, a filter, a page opened.
func (v *workspace) goBack() {
	switch n := len(v.trail); {
	case v.zoomed[v.current] > 0:
		delete(v.zoomed, v.current)
	case v.filterText() != "":
		v.setFilter("")
	case n > 0:
		v.previous, v.current, v.trail = v.current, v.trail[n-1], v.trail[:n-1]
	}
}

// isAtTop reports whether there is nothing to go back to.
func (v *workspace) isAtTop() bool {
	return v.zoomed[v.current] == 0 && v.filterText() == "" && len(v.trail) == 0
}

// panesOfPage are the parts of the present page that can fill it, or nil.
func (v *workspace) panesOfPage() []page.Pane {
	if p, ok := v.pages[v.current].(page.Paned); ok {
		return p.Panes(v.state)
	}
	return nil
}

// zoomNextPane lets the next pane fill the page; after the last the whole page is
// back. Each page remembers its own.
func (v *workspace) zoomNextPane() {
	n := len(v.panesOfPage())
	if n == 0 {
		v.showNote(themes.Dim, "nothing to zoom: the page is one pane")
		return
	}
	v.zoomed[v.current] = (v.zoomed[v.current] + 1) % (n + 1)
}

// drawPage draws the present page, or the one pane that fills it.
func (v *workspace) drawPage(c *widget.Canvas) {
	if at := v.zoomed[v.current]; at > 0 {
		if panes := v.panesOfPage(); at <= len(panes) {
			panes[at-1].Draw(c, c.Whole(), v.drawnState(v.current))
			return
		}
	}
	s := v.drawnState(v.current)
	v.pages[v.current].Draw(c, c.Whole(), s)
	if fillable[v.current] {
		spare.Fill(c, spare.Below(c, c.Whole()), s, v.spareEvidence(s, c.W))
	}
}

// fillable are the pages whose lower part is filled where nothing is drawn.
var fillable = map[key.Scope]bool{
	key.Ladder:   true,
	key.Validate: true,
	key.Recovery: true,
}

// spareEvidence is what an open incident rests on, for pages that do not show it.
func (v *workspace) spareEvidence(s *page.State, w int) []page.Line {
	if inc := s.Incident(); v.current != key.Ladder && page.Open(inc) {
		return ladder.EvidenceLines(inc.GetVerdict(), w)
	}
	return nil
}

// zoomedPaneNote returns which pane fills the page, or "".
func (v *workspace) zoomedPaneNote() string {
	at := v.zoomed[v.current]
	if at == 0 {
		return ""
	}
	panes := v.panesOfPage()
	back := v.keys.Name(key.Back, key.Global)
	switch n := len(panes); {
	case at > n:
		return ""
	case n == 1:
		return fmt.Sprintf(" %s: pane 1 of 1, %s all ", panes[0].Name, back)
	default:
		return fmt.Sprintf(" %s: pane %d of %d, %s next, %s all ",
			panes[at-1].Name, at, n, v.keys.Name(key.ZoomPane, key.Global), back)
	}
}

// performOnPage gives an action to the page; what the page wants shown is shown on the
// page that it belongs to.
func (v *workspace) performOnPage(a key.Action) tea.Cmd {
	if to := v.pages[v.current].Act(a, v.pointedState(), v.body); to != "" {
		v.showPage(to)
	}
	v.shareChoice()
	if id, ok := v.state.Looked("INC-"); ok {
		return v.openIncident(id)
	}
	if id, ok := v.state.Looked("REC-"); ok {
		v.chooseRecovery(id)
	}
	return nil
}

func (v *workspace) chooseRecovery(id string) {
	if p, ok := v.pages[key.Recovery].(page.Chooser); ok {
		p.Choose(id)
	}
}

// pointedState is what a page takes keys and the pointer by: the ladder's cursor is
// among the rungs that it has drawn.
func (v *workspace) pointedState() *page.State {
	if v.current == key.Ladder {
		return v.drawnState(v.current)
	}
	return v.state
}

// Pointed is a page that knows targets of its own besides ranks.
type Pointed interface {
	// Point chooses what was pointed at.
	Point(t widget.Target, s *page.State)
}

// pointAt chooses what was pointed at; a rank that is chosen already is opened.
func (v *workspace) pointAt(t widget.Target) {
	switch t.Kind {
	case widget.NoTarget:
		return
	case widget.TargetRank:
		v.pointRank(int32(t.N))
		return
	case widget.TargetRow, widget.TargetIteration:
	}
	if p, ok := v.pages[v.current].(Pointed); ok {
		p.Point(t, v.pointedState())
	}
}

func (v *workspace) pointRank(rank int32) {
	again := rank == v.state.Rank() && !v.state.Following()
	v.state.Select(rank)
	v.shareChoice()
	switch {
	case !again:
	case v.current == key.Overview:
		v.showPage(key.Ranks)
	case v.current == key.Validate:
		v.performOnPage(key.Pick)
	default:
		v.performOnPage(key.Open)
	}
}

// chooseRank selects a rank by its number.
func (v *workspace) chooseRank(arg string) {
	n, err := strconv.Atoi(arg)
	if err != nil || !v.state.Select(int32(min(n, 1<<30))) {
		v.showNote(themes.Warn, "rank takes a number from 0 to "+strconv.Itoa(v.state.Roster.World()-1))
		return
	}
	v.shareChoice()
	if v.current == key.Overview ||
		v.current == key.Ladder ||
		v.current == key.Events {
		v.showPage(key.Ranks)
	}
}

// followWorst goes back to the worst rank.
func (v *workspace) followWorst() {
	v.state.Follow()
	v.shareChoice()
}

// togglePause holds the pages still, or lets them run again.
func (v *workspace) togglePause() {
	if v.isRunning() {
		v.holdPages(v.now())
		return
	}
	v.filterRanks(v.resumePages())
}

// openIncident looks at an incident; the present one, or "", ends browsing.
func (v *workspace) openIncident(id string) tea.Cmd {
	if !v.browseTo(id, v.now()) {
		return nil
	}
	return v.fetchIncident()
}

// fetchIncident asks for the incident that is looked at.
func (v *workspace) fetchIncident() tea.Cmd {
	id, src := v.look.id, v.src
	return func() tea.Msg {
		r, err := src.Incidents(context.Background(), id)
		return incidentMsg{id, r, err}
	}
}

// fetchAgain asks again for an incident that no snapshot holds, where that is
// due.
func (v *workspace) fetchAgain() tea.Cmd {
	if !v.renewLooked(v.now()) {
		return nil
	}
	return v.fetchIncident()
}

// stepIncident goes to an older (+1) or newer (-1) incident.
func (v *workspace) stepIncident(by int) tea.Cmd {
	id, why := v.stepFrom(by)
	if why != "" {
		v.showNote(themes.Dim, why)
		return nil
	}
	return v.openIncident(id)
}

// showLadder shows the ladder of what the bar is about; pressed again, or where only
// another incident waits, that of the next one that waits.
func (v *workspace) showLadder() tea.Cmd {
	there := v.current == key.Ladder
	v.showPage(key.Ladder)
	others := v.waitingElse("")
	switch {
	case v.readOnlyReason() != "":
		v.look = nil
	case len(others) > 0 && (there || v.subjectState("").Proposal() == nil):
		return v.openIncident(others[0])
	case there:
		v.look = nil
	}
	return nil
}
