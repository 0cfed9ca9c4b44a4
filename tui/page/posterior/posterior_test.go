package posterior

import (
	"strings"
	"testing"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/page"
	"github.com/failslow/falcon/tui/widget"
)

var screen = widget.Rect{W: 60 + LabelWidth, H: 35}

// regime is a series of n iterations from first whose run length falls at
// change; the posterior has all mass on the run length.
func regime(first, n, change int64, lengths int) *falconv1.Series {
	s := &falconv1.Series{
		FirstIteration: first,
		Threshold:      0.9,
		Window:         5,
		BaselineMs:     100,
		RunLengths:     int32(lengths),
	}
	for i := first; i < first+n; i++ {
		run := i
		if i >= change {
			run = i - change
		}
		p := make([]float32, lengths)
		p[min(run, int64(lengths)-1)] = 1
		s.Ms = append(s.Ms, 100)
		s.MapRunLength = append(s.MapRunLength, int32(run))
		s.Probability = append(s.Probability, 0)
		s.Posterior = append(s.Posterior, p...)
	}
	s.Marks = []*falconv1.Mark{{Iteration: change, Kind: "onset"}}
	return s
}

func stateOf(s *falconv1.Series) *page.State {
	return page.NewState(&feed.State{Snap: &falconv1.SnapshotReply{
		Job:    &falconv1.Job{World: 2},
		Series: s,
	}})
}

func draw(t *testing.T, p *Page, s *page.State, r widget.Rect) string {
	t.Helper()
	theme, err := themes.Load("dark")
	if err != nil {
		t.Fatal(err)
	}
	c := widget.NewCanvas(r.W, r.H, theme.Palette(colorprofile.TrueColor), false)
	p.Draw(c, c.Whole(), s)
	return ansi.Strip(c.String())
}

func wants(t *testing.T, out string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(out, part) {
			t.Errorf("no %q in:\n%s", part, out)
		}
	}
}

func TestNumbersAreTheEngines(t *testing.T) {
	s := regime(0, 900, 895, 128)
	s.Probability[899] = 0.97
	p := s.Posterior[899*128:]
	p[4] = 0.90
	p[127] = 0.07
	p[3] = 0.03
	out := draw(t, New(), stateOf(s), screen)
	wants(
		t,
		out,
		"iteration 899 (newest)",
		"P(change ≤5 steps) 0.970 ALARM; likeliest stretch 4 (was 894)",
		"4: 0.900  127+: 0.070  3: 0.030",
		"895▼",
	)
}

func TestScrubbingGoesBackAndAsksForMore(t *testing.T) {
	s := stateOf(regime(0, 500, 100, 16))
	p := New()
	if n, _ := p.Want(screen); n != 60 {
		t.Errorf("%d columns wanted while following, 60 fit", n)
	}
	p.Act(key.Older, s, screen)
	wants(t, draw(t, p, s, screen), "30 newer, G follows", "iteration 469 (newest shown)")
	if n, _ := p.Want(screen); n < 60+30 {
		t.Errorf("%d columns wanted 30 iterations back", n)
	}
	for range 40 {
		p.Act(key.Older, s, screen)
	}
	wants(t, draw(t, p, s, screen), "iteration 59 (newest shown)")
	p.Act(key.Next, s, screen)
	wants(t, draw(t, p, s, screen), "iteration 100 (hairline", "▼ onset")
	p.Act(key.Last, s, screen)
	wants(t, draw(t, p, s, screen), "iteration 499 (newest)")
}

// While the operator looks at an iteration it stays, however far the job goes.
func TestAHairlineHoldsTheScreen(t *testing.T) {
	p := New()
	s := stateOf(regime(0, 100, 50, 16))
	p.Act(key.Next, s, screen)
	for _, n := range []int64{120, 160, 400} {
		s.Update(&feed.State{
			Snap: &falconv1.SnapshotReply{
				Job:    &falconv1.Job{World: 2},
				Series: regime(0, n, 50, 16),
			},
		})
		wants(t, draw(t, p, s, screen), "iteration 50 (hairline, G lets go)", "│")
	}
	wants(t, draw(t, p, s, screen), "newer, G follows")
}

func TestChangesAreLinesThroughTheHeat(t *testing.T) {
	out := draw(t, New(), stateOf(regime(0, 100, 80, 64)), screen)
	lines := 0
	for _, row := range strings.Split(out, "\n") {
		if strings.Contains(row, "╎") && !strings.Contains(row, "change") {
			lines++
		}
	}
	if lines < heatMin {
		t.Errorf("the change crosses %d rows:\n%s", lines, out)
	}
}

// Every run length is in exactly one row, and a row holds the sum: a simple
// second way to build the same picture.
func TestBinsPartTheRunLengths(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lengths := rapid.IntRange(1, 300).Draw(t, "lengths")
		rows := rapid.IntRange(1, 60).Draw(t, "rows")
		list := runLengthBins(rows, lengths)
		next := 0
		for _, b := range list {
			if b.lo != next || b.hi < b.lo {
				t.Fatalf("bin %+v follows %d in %v", b, next, list)
			}
			next = b.hi + 1
		}
		if next != lengths || len(list) > rows {
			t.Fatalf("%d of %d run lengths in %d of %d rows", next, lengths, len(list), rows)
		}
	})
}
