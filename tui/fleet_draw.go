package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/fleet"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/widget"
)

// body is where the table is drawn: between two rows above and two below.
func (f *Fleet) body() widget.Rect {
	return widget.Rect{
		X: 0,
		Y: headerRows,
		W: f.w,
		H: max(0, f.h-headerRows-footerRows),
	}
}

// composeFleet draws the list of jobs.
func (f *Fleet) composeFleet() (string, *tea.Cursor) {
	body := f.body()
	if body.H < 1 || f.w < 1 {
		return "", nil
	}
	all := (&fleet.Table{}).Rows(f.jobs, f.now())
	f.rows, f.sum = f.table.Choice(all), fleet.SumOf(all)
	c := widget.NewCanvas(body.W, body.H, f.skin.pal, f.opts.ASCII)
	f.table.Draw(c, c.Whole(), f.rows, f.now(), f.opts.Zone, f.emptyText())
	f.targets = c.Targets()
	last, cursor := f.drawLastRow()
	if x, y, ok := f.targets.Focused(); ok && cursor == nil {
		cursor = underlineCursor(x, y+headerRows)
	}
	screen := strings.Join([]string{f.drawHeader(), c.String(), f.drawStatus(), last}, "\n")
	if f.help != nil {
		if f.help.search == nil {
			cursor = nil
		}
		screen = overlayLayer(screen, f.help.drawOver(f.skin, body))
	}
	return f.skin.onlyASCII(screen), cursor
}

// emptyText says why there is no row, and what to do.
func (f *Fleet) emptyText() string {
	if len(f.jobs) > 0 {
		return "no job matches " + f.table.Filter.Text() + "; " + f.keys.Name(key.Back, key.Fleet) +
			" shows all"
	}
	return "No engine is known here. Add one with falcon context add NAME ADDRESS, or start a lab with falcon lab run."
}

// drawHeader draws the sums, and below them what waits for a person.
func (f *Fleet) drawHeader() string {
	base := f.skin.pal.Style(themes.Header)
	bold := base.With(themes.Bold).Lipgloss()
	s := f.sum
	left := " " +
		bold.Render("FLEET") +
		fmt.Sprintf(" %s, %s ranks", counted(len(f.jobs), "job"), phrase.Count(int64(s.Ranks)))
	for _, part := range s.Parts() {
		left += "  " + f.skin.styled(part.Role, part.Text)
	}
	right := phrase.Clock(f.now(), f.now(), f.opts.Zone) + " "
	second := " nothing waits for a person"
	if s.First != nil {
		second = " " + f.skin.styled(themes.Accent, s.First.Name+": "+s.First.Waits[0].Text())
		if s.Waiting > 1 {
			second += fmt.Sprintf("  +%d more, %s",
				s.Waiting-1, f.keys.Name(key.Next, key.Fleet))
		}
	}
	lost := fleet.Cost(s.Lost, s.PerHour) + " "
	if lipgloss.Width(second)+1+lipgloss.Width(lost) > f.w {
		lost = "" // the rows have it
	}
	return layoutRow(base, f.w, left, right, 1) + "\n" + layoutRow(base, f.w, second, lost, 1)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// drawStatus says what the list shows, and in which order.
func (f *Fleet) drawStatus() string {
	left := " " + f.skin.styled(themes.Dim, f.table.Order.String())
	if text := f.table.Filter.Text(); text != "" {
		left += "  " +
			f.skin.styled(themes.Urgent, fmt.Sprintf(" /%s: %d of %s ",
				text, len(f.rows), counted(len(f.jobs), "job")))
	}
	right := ""
	from, to := f.table.Shown(f.rows, f.body().H)
	if to-from+1 < len(f.rows) {
		right = f.skin.styled(themes.Dim, fmt.Sprintf("%d-%d of %d ", from, to, len(f.rows)))
	}
	return layoutRow(f.skin.blankStyle(), f.w, left, right, 1)
}

// drawLastRow draws a prompt, a message, or else the keys.
func (f *Fleet) drawLastRow() (string, *tea.Cursor) {
	y := f.h - 1
	if f.prompt != nil {
		return f.prompt.drawInput(f.skin, f.w, y)
	}
	if f.help != nil && f.help.search != nil {
		return f.help.drawSearch(f.skin, f.w, y)
	}
	left := " "
	switch role, note, ok := f.notes.presentNote(); {
	case ok:
		left += f.skin.styled(role, note)
	case f.help != nil:
		left += f.skin.shortHelp(f.w-1, f.keys.Footer(key.Help))
	default:
		left += f.skin.shortHelp(f.w-1, f.keys.Footer(key.Fleet))
	}
	return layoutRow(f.skin.blankStyle(), f.w, left, "", 0), nil
}

// windowTitle names the first job in which something waits.
func (f *Fleet) windowTitle() string {
	if first := f.sum.First; first != nil {
		return "! " + first.Name + " · falcon"
	}
	return "falcon · " + counted(len(f.jobs), "job")
}
