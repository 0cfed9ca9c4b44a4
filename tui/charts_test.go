package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
)

// watched is a console that has seen the whole story, picture by picture, on the page of charts.
func watched(t *testing.T, w, h int, ascii bool) *Model {
	t.Helper()
	e := enginetest.New(enginetest.Options{})
	profile := colorprofile.TrueColor
	now := newClock()
	m, err := New(&still{state: pictureOf(t, e, feed.Want{Rank: -1, Columns: 120})}, Options{
		Theme:   "dark",
		Profile: &profile,
		Now:     now.now,
		ASCII:   ascii,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Update(tea.WindowSizeMsg{Width: w, Height: h})
	for e.Iteration() < 220 {
		e.Advance(4)
		s := pictureOf(t, e, feed.Want{Rank: -1, Columns: 120})
		s.Received = now.now()
		m.Update(updateMsg{s})
	}
	m.work.showPage(key.Posterior)
	send(m, "m")
	return m
}

// All measures of the whole run on one axis, at every size.
func TestGoldenCharts(t *testing.T) {
	for _, s := range sizes {
		golden(
			t,
			fmt.Sprintf("text/charts-%dx%d.txt", s[0], s[1]),
			trimRows(text(watched(t, s[0], s[1], false))),
		)
	}
	golden(t, "text/charts-80x24-ascii.txt", trimRows(text(watched(t, 80, 24, true))))
	m := watched(t, 80, 24, false)
	send(m, "+")
	send(m, "[")
	send(m, "h")
	golden(t, "text/charts-zoomed-80x24.txt", trimRows(text(m)))
}

// Zoom and pan keep to the run, and what they show is of the time that they say.
func TestChartsZoomAndPan(t *testing.T) {
	m := watched(t, 120, 40, false)
	if s := text(m); !strings.Contains(s, "66 s, all that this console has seen") {
		t.Fatalf("\n%s", s)
	}
	for _, c := range []struct{ keys, want string }{
		{"+", "33 s of 66 s"},
		{"[", "G follows"},
		{"[[[[[[", "14:00:00Z"},
		{"G", "14:01:06Z"},
		{"g", "all that this console has seen"},
		{"++++", "30 s of 66 s"},
		{"____", "all that this console has seen"},
		{"m", "RUN-LENGTH POSTERIOR"},
		{"_", "THROUGHPUT"},
	} {
		for _, k := range c.keys {
			send(m, string(k))
		}
		if s := text(m); !strings.Contains(s, c.want) {
			t.Errorf("after %q no %q:\n%s", c.keys, c.want, s)
		}
	}
}

// A recording that goes back begins the course again; what is seen twice is not counted twice.
func TestTheCourseFollowsTheTime(t *testing.T) {
	at := func(iteration int64) *feed.State {
		return stateAt(t, enginetest.Options{}, iteration, 0, feed.Want{
			Rank:    -1,
			Columns: 60,
		})
	}
	s := page.NewState(at(30))
	count := func() (n int64) {
		for _, b := range s.Course.Of(page.IterationTime).Columns(time.Unix(0, 0), time.Unix(2e9, 0), 1) {
			n += b.N
		}
		return n
	}
	for _, c := range []struct{ iteration, want int64 }{{30, 31}, {40, 41}, {60, 61}, {25, 26}, {30, 31}} {
		if s.Update(at(c.iteration)); count() != c.want {
			t.Errorf("at iteration %d the course holds %d, want %d", c.iteration, count(), c.want)
		}
	}
}
