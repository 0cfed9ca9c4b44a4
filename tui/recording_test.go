package tui

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

type recorder struct{ why string }

func (r *recorder) Stopped() string { return r.why }

// The header says that the session is recorded, and the console that it is no
// more, once.
func TestRecordingIsShown(t *testing.T) {
	e := enginetest.New(enginetest.Options{})
	e.AdvanceTo(20)
	src := &still{state: pictureOf(t, e, feed.Want{
		Rank:       feed.WorstRank,
		Columns:    60,
		RunLengths: 16,
	})}
	for w, mark := range map[int]string{80: "● rec  data", 120: "● recording  data"} {
		r := &recorder{}
		m := quiet(
			t,
			src,
			Options{Theme: "dark", Now: newClock().now, Recorder: r},
			w,
			24,
		)
		screen := func() string {
			m.Update(updateMsg{src.state})
			m.screen.dirty = true
			return ansi.Strip(m.View().Content)
		}
		if s := screen(); !strings.Contains(s, mark) {
			t.Errorf("%d columns: no mark in\n%s", w, s)
		}
		r.why = "it is at its limit of 512.0 MiB"
		s := screen()
		if !strings.Contains(s, "recording stopped  data") ||
			!strings.Contains(s, "the recording has stopped: it is at its limit of 512.0 MiB") ||
			strings.Contains(s, "● rec") {
			t.Errorf("%d columns: the end is not reported in\n%s", w, s)
		}
	}
	if s := quiet(
		t,
		src,
		Options{Theme: "dark", Now: newClock().now},
		120,
		24,
	).View().Content; strings.Contains(s, "recording") {
		t.Error("a session that isn't recorded has the mark")
	}
}
