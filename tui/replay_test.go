package tui

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
	"github.com/failslow/falcon/tui/record"
)

// storyStates plays the scripted story, with a loss in it, and hands every
// iteration's picture over.
func storyStates(t *testing.T, visit func(*feed.State)) {
	t.Helper()
	e := enginetest.New(enginetest.Options{})
	want := feed.Want{
		Rank:       feed.WorstRank,
		Columns:    240,
		RunLengths: 128,
	}
	for i := int64(1); i <= enginetest.End; i++ {
		e.AdvanceTo(i)
		if i == enginetest.Proposed+4 {
			_, err := e.Decide(context.Background(), &falconv1.DecideRequest{
				Action:   "INC-0001/S2/1",
				PlanHash: "9f2c41d0",
				Approve:  true,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		visit(pictureOf(t, e, want))
	}
}

// draw composes every page of a picture in words.
func draw(t *testing.T, s *feed.State, at time.Time, p key.Scope, w, h int) string {
	t.Helper()
	profile := colorprofile.TrueColor
	m, err := New(&still{state: s}, Options{
		Theme:   "dark",
		Profile: &profile,
		Now:     func() time.Time { return at },
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Update(tea.WindowSizeMsg{Width: w, Height: h})
	m.work.showPage(p)
	m.screen.dirty = true
	return m.View().Content
}

// nearly reports whether two pictures differ in few characters: a probability that
// was rounded may have its neighbour's shade, and shades are half blocks.
func nearly(a, b string) bool {
	x, y, other := []rune(ansi.Strip(a)), []rune(ansi.Strip(b)), 0
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		half := func(r rune) bool {
			return r == '▀' || r == '▄' || r == ' ' || r == '█'
		}
		if x[i] != y[i] && !(half(x[i]) && half(y[i])) {
			return false
		}
		if x[i] != y[i] {
			other++
		}
	}
	return other*100 < len(x)
}

// What was recorded plays back as it was: every page of every picture, cell
// for cell and colour for colour, but for the shades of the posterior.
func TestReplayDrawsWhatWasLive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "story.frec")
	at := newClock().now()
	w, err := record.Create(path, record.Options{Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
	var live []*feed.State
	storyStates(t, func(s *feed.State) {
		live = append(live, s)
		w.Record(s)
	})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := record.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = r.All(func(_ record.Moment, s *feed.State) bool {
		for i, p := range key.Pages {
			if n%7 != i%7 && n%40 != 0 { // one page of most pictures, all of some
				continue
			}
			got := draw(t, s, at, p, 120, 40)
			want := draw(t, live[n], at, p, 120, 40)
			if got != want && !(p == key.Posterior && nearly(got, want)) {
				t.Fatalf("picture %d, page %s, is not as it was live:\n%s\nlive:\n%s", n, p, got, want)
			}
		}
		n++
		return true
	})
	if err != nil || n != len(live) || r.Cut != "" {
		t.Errorf("%d of %d pictures played: %v, cut %q", n, len(live), err, r.Cut)
	}
}

// The footer of a recording names no key that decides.
func TestARecordingOffersNoDecision(t *testing.T) {
	for _, p := range key.Pages {
		src := &still{state: stateAt(
			t,
			enginetest.Options{},
			enginetest.Proposed+4,
			0,
			wide,
		)}
		live := quiet(t, src, Options{Theme: "dark", Now: newClock().now}, 200, 60)
		live.work.showPage(p)
		all := live.keys.Footer(live.keyScopes(true)...)
		live.opts.Replay = idleReplay{}
		left := live.offeredKeys(slices.Clone(all))
		for _, b := range left {
			if key.Decides(b.Action) {
				t.Errorf("%s: %s is offered", p, b.Action)
			}
		}
		if len(left) == 0 || len(left) == len(all) {
			t.Errorf("%s: %d of %d keys are left", p, len(left), len(all))
		}
	}
}

// idleReplay is a recording that nobody plays.
type idleReplay struct{ Replay }
