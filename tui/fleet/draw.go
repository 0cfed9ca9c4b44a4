package fleet

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/failslow/falcon/backend/statements"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// looks are how classes are drawn.
var looks = [classes]struct {
	glyph rune
	role  themes.Role
}{
	Stopped:    {'✖', themes.Culprit},
	Recovering: {'◆', themes.Warn},
	Slow:       {'▲', themes.Warn},
	Away:       {'?', themes.Stale},
	Connecting: {'·', themes.Dim},
	Waiting:    {'○', themes.Dim},
	Learning:   {'○', themes.Dim},
	Training:   {'●', themes.Good},
	Finished:   {'○', themes.Dim},
}

// cell is one field of a row.
type cell struct {
	role themes.Role
	text string
}

// column is one field of all rows; w columns wide, or a share of what the others leave.
type column struct {
	title string
	w     int
	share int
	from  int // the least width of the table that has it
	until int // the width from which on it has not; 0 = always has
	right bool
	cell  func(*Row) cell
}

var columns = []column{
	{title: "JOB", w: 16, cell: func(r *Row) cell { return cell{themes.Text, r.Name} }, until: 110},
	{title: "JOB", w: 24, from: 110, cell: func(r *Row) cell { return cell{themes.Text, r.Name} }},
	{title: "ITS NAME", w: 14, from: 110, cell: func(r *Row) cell { return cell{themes.Dim, ownName(r)} }},
	{title: "RANKS", w: 7, from: 50, right: true, cell: sizeCell},
	{title: "STATE", w: 10, cell: func(r *Row) cell { return cell{looks[r.Class].role, r.Class.String()} }},
	{title: "SLOW", w: 6, from: 44, right: true, cell: slowCell},
	{title: "GPU-H", w: 6, from: 60, right: true, cell: lostCell},
	{title: "OPEN", w: 4, from: 110, right: true, cell: openCell},
	{title: "WAITS FOR", share: 2, cell: waitCell},
	{title: "WHAT", share: 3, from: 150, cell: func(r *Row) cell { return cell{themes.Text, r.What()} }},
	{title: "NEWS", w: 6, from: 38, right: true, cell: newsCell},
}

// ownName is what the engine calls the job, where that is not how this console does.
func ownName(r *Row) string {
	if r.JobName() == r.Name {
		return ""
	}
	return r.JobName()
}

func sizeCell(r *Row) cell {
	if r.World() == 0 {
		return cell{themes.Dim, "—"}
	}
	return cell{themes.Text, phrase.Count(int64(r.World()))}
}

func slowCell(r *Row) cell {
	switch {
	case r.Class == Stopped ||
		r.Class >= Away && r.Class != Training ||
		r.Slowdown < 0.005:
		return cell{}
	case r.Slowdown >= 0.5:
		return cell{themes.Bad, phrase.Percent(r.Slowdown)}
	case r.Slowdown >= 0.1:
		return cell{themes.Warn, phrase.Percent(r.Slowdown)}
	}
	return cell{themes.Text, phrase.Percent(r.Slowdown)}
}

func lostCell(r *Row) cell {
	if r.Lost < 0.05 {
		return cell{}
	}
	return cell{themes.Text, hours(r.Lost)}
}

// hours is an amount of GPU-hours in at most six characters.
func hours(x float64) string {
	switch {
	case x < 100:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case x < 100_000:
		return phrase.Count(int64(x))
	}
	return strconv.FormatFloat(x, 'g', 2, 64)
}

func openCell(r *Row) cell {
	if n := r.State.Snap.GetBrief().GetOpen(); n > 0 {
		return cell{themes.Bad, strconv.Itoa(int(n))}
	}
	return cell{}
}

func waitCell(r *Row) cell {
	if len(r.Waits) == 0 {
		return cell{}
	}
	text := r.Waits[0].Terse()
	role := themes.Accent
	if n := len(r.Waits) - 1; n > 0 {
		text += fmt.Sprintf(" +%d", n)
	}
	if r.Class == Away {
		role = themes.Stale // perhaps decided long ago
	}
	return cell{role, text}
}

func newsCell(r *Row) cell {
	switch {
	case r.News < 0:
		return cell{themes.Dim, "never"}
	case r.Class == Away || r.News > staleAfter && r.Class != Finished:
		return cell{themes.Warn, short(r.News)}
	}
	return cell{themes.Dim, short(r.News)}
}

// staleAfter is the age of news that is worth a warning: more than two pulls.
const staleAfter = 3 * BlurredPeriod / 2

// short is an age in at most five characters.
func short(d time.Duration) string {
	switch s := int(d.Seconds()); {
	case s < 100:
		return fmt.Sprintf("%d s", s)
	case s < 6000:
		return fmt.Sprintf("%d min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%d h", s/3600)
	default:
		return fmt.Sprintf("%d d", s/86400)
	}
}

// DetailRows is the room that the pane below the table takes in a page of h rows.
func DetailRows(h int) int {
	switch {
	case h < 12:
		return 0
	case h < 30:
		return 7
	}
	return 9
}

// TableRows is how many jobs a page of h rows shows.
func TableRows(h int) int {
	return max(1, h-1-DetailRows(h))
}

// Shown are the first and the last row, counted from 1, that a page of h rows shows.
func (t *Table) Shown(rows []Row, h int) (from, to int) {
	from = t.window(rows, TableRows(h))
	return from + 1, min(len(rows), from+TableRows(h))
}

// Draw draws the table, and below it what there is to say of the job under the cursor. Empty
// says why there is no row.
func (t *Table) Draw(
	c *widget.Canvas,
	r widget.Rect,
	rows []Row,
	now time.Time,
	zone *time.Location,
	empty string,
) {
	list, detail := r.Rows(r.H - DetailRows(r.H))
	head, list := list.Rows(1)
	if len(rows) == 0 {
		page.Empty(c, r, empty)
		return
	}
	at := placeColumns(r.W)
	drawHead(c, head, at)
	first := t.window(rows, list.H)
	for i := range min(list.H, len(rows)-first) {
		line := widget.Rect{X: r.X, Y: list.Y + i, W: r.W, H: 1}
		drawRow(c, line, at, &rows[first+i], first+i == t.Cursor(rows))
		c.Hit(line, widget.Target{Kind: widget.TargetRow, N: int64(first + i)})
	}
	if detail.H > 0 {
		chosen := t.Chosen(rows)
		below := c.Rule(detail, chosen.Name, chosen.Address)
		page.DrawLines(c, below, chosen.Detail(now, zone))
	}
}

// placed is a column where it is drawn.
type placed struct {
	column
	x int
}

const markW = 2 // the glyph before a row

func placeColumns(w int) []placed {
	var out []placed
	shares := 0
	rest := w - markW
	for _, col := range columns {
		if w >= col.from && (col.until == 0 || w < col.until) {
			out = append(out, placed{column: col})
			shares += col.share
			rest -= col.w + 1
		}
	}
	x := markW
	for i := range out {
		if out[i].share > 0 {
			out[i].w = max(0, rest*out[i].share/shares)
		}
		out[i].x = x
		x += out[i].w + 1
	}
	return out
}

func drawHead(c *widget.Canvas, r widget.Rect, at []placed) {
	for _, col := range at {
		drawCell(c, r.X, r.Y, col, cell{themes.Title, col.title}, themes.Style{})
	}
}

func drawRow(c *widget.Canvas, r widget.Rect, at []placed, row *Row, chosen bool) {
	base := themes.Style{}
	if chosen {
		base = c.Pal.Style(themes.Selected)
		c.Fill(r, ' ', base)
	}
	look := looks[row.Class]
	drawCell(
		c,
		r.X,
		r.Y,
		placed{column: column{w: 1}},
		cell{look.role, string(look.glyph)},
		base,
	)
	for _, col := range at {
		drawCell(c, r.X, r.Y, col, col.cell(row), base)
	}
}

// drawCell draws a field within its column and nowhere else.
func drawCell(c *widget.Canvas, x, y int, col placed, text cell, base themes.Style) {
	at := x + col.x
	room := col.w
	if n := widget.Width(text.text); col.right && n < room {
		at = at + room - n
		room = n
	}
	c.Pen(widget.Rect{X: at, Y: y, W: room, H: 1}).Over(base).Put(text.role, text.text)
}

// What is in a few words what is the matter with a job.
func (r *Row) What() string {
	snap := r.State.Snap
	switch {
	case r.Class == Away:
		return r.State.Err
	case len(r.said) > 0 &&
		r.said[0].Action != nil &&
		r.said[0].Ends == statements.EndsNone &&
		r.culprit() != "":
		return r.culprit() // what waits has a column of its own
	case len(r.said) > 0 &&
		(r.said[0].Severity > statements.Plain || r.said[0].Kind == statements.Finished):
		return phrase.Statement(&r.said[0], r.at)
	}
	return snap.GetJob().GetAlarm()
}

// culprit is the verdict of the incident that the first statement's action is for, "" where
// the picture has none.
func (r *Row) culprit() string {
	for _, v := range r.State.Snap.GetIncidents() {
		if v.GetId() == r.said[0].Action.GetIncident() {
			return v.GetId() + " " + phrase.Verdict(v.GetVerdict())
		}
	}
	return ""
}

// Detail is what there is to say of a job.
func (r *Row) Detail(now time.Time, zone *time.Location) []page.Line {
	var out []page.Line
	put := func(role themes.Role, text string) {
		if text != "" {
			out = append(out, page.Line{Text: text, Role: role})
		}
	}
	snap, s := r.State.Snap, r.State
	switch r.Class {
	case Away:
		put(themes.Warn, fmt.Sprintf("away since %s (%s): %s; tried again in %s",
			phrase.Clock(s.Since, now, zone), phrase.Lasting(now.Sub(s.Since)), s.Err,
			phrase.Seconds(max(0, r.Retry.Sub(now)))))
	case Connecting:
		put(themes.Dim, "connecting")
	default:
	}
	put(themes.Warn, r.Version())
	if s.Received.IsZero() {
		return out
	}
	put(themes.Text, r.headline())
	if r.Class == Stopped || r.Class == Recovering {
		put(looks[r.Class].role, r.What())
	}
	for _, w := range r.Waits {
		put(themes.Accent, w.Text())
	}
	engineNow := time.Unix(0, snap.GetAtUnixNs()).Add(max(0, now.Sub(s.Received)))
	for _, v := range snap.GetIncidents() {
		text := v.GetId() + " " + phrase.Prefixed("since ", phrase.Since(v, engineNow, zone))
		put(
			themes.Bad,
			text+
				"  "+
				phrase.Verdict(v.GetVerdict())+
				phrase.Prefixed("  ", phrase.Triage(feed.TriageOf(snap, v.GetId()), engineNow, zone)),
		)
	}
	n := int(snap.GetBrief().GetOpen()) - len(snap.GetIncidents())
	if n > 0 {
		put(themes.Bad, fmt.Sprintf("%d more incidents are open", n))
	}
	put(themes.Warn, snap.GetJob().GetAlarm())
	put(themes.Dim, fmt.Sprintf("you are %s (%s) there; %s",
		cmp.Or(snap.GetActor(), "unknown"), cmp.Or(snap.GetRole(), "no role"),
		phrase.Mode(snap.GetPolicy())))
	return out
}

// headline is size, progress, and what it costs.
func (r *Row) headline() string {
	j := r.State.Snap.GetJob()
	text := cmp.Or(j.GetName(), "no job yet")
	if j.GetEmulated() {
		text += " (emulated)"
	}
	text += fmt.Sprintf("  %s ranks  iteration %s  %s",
		phrase.Count(int64(r.World())), phrase.Iteration(j.GetIteration()),
		phrase.Ms(j.GetIterationMs()))
	if j.GetBaselineMs() > 0 {
		text += " " + phrase.Percent(j.GetSlowdown()) + " vs base"
	}
	return text + phrase.Prefixed("  ", Cost(r.Lost, r.PerHour))
}

// Cost is what open incidents have cost, and what they cost an hour, in GPU-hours; "" for less
// than a tenth of one.
func Cost(lost, perHour float64) string {
	switch {
	case lost >= 0.05 && perHour >= 0.05:
		return fmt.Sprintf("%s GPU-hours lost, %s more an hour", hours(lost), hours(perHour))
	case lost >= 0.05:
		return hours(lost) + " GPU-hours lost"
	case perHour >= 0.05:
		return hours(perHour) + " GPU-hours lost an hour"
	}
	return ""
}
