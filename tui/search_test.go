package tui

import (
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/internal/enginetest"
	"github.com/failslow/falcon/tui/key"
)

// many is a job in which ranks are sought aside.
var many = enginetest.Options{
	TP:      8,
	DP:      80,
	PP:      8,
	Healthy: true,
}

// seeker is a console on the ranks page of a large job, whose commands run when
// the test says so.
type seeker struct {
	*Model
	t      testing.TB
	engine *enginetest.Engine
}

func newSeeker(t testing.TB, o enginetest.Options) *seeker {
	s := &seeker{t: t, engine: enginetest.New(o)}
	s.engine.AdvanceTo(firstIteration)
	src := newScript()
	src.latest.Store(s.picture())
	s.Model = quiet(t, src, Options{Theme: "dark", Now: newClock().now}, 120, 40)
	s.work.showPage(key.Ranks)
	return s
}

func (s *seeker) picture() *feed.State {
	s.engine.Advance(1)
	out := pictureOf(s.t, s.engine, wide)
	out.Memo = &feed.Memo{}
	return out
}

func (s *seeker) press(keys ...string) (last tea.Cmd) {
	for _, k := range keys {
		_, last = s.Update(keyMsg(k))
	}
	return last
}

// find runs a command that seeks, to its end.
func (s *seeker) find(cmd tea.Cmd) tea.Cmd {
	s.t.Helper()
	if cmd == nil {
		s.t.Fatal("nothing is sought")
	}
	msg, ok := cmd().(searchedMsg)
	if !ok {
		s.t.Fatal("the command seeks nothing")
	}
	_, next := s.Update(msg)
	return next
}

func (s *seeker) wantNote(want string) {
	s.t.Helper()
	if got := s.prompt.note; got != want {
		s.t.Errorf("the note says %q, want %q", got, want)
	}
}

// What is typed is counted aside, one text at a time, and the newest in the end.
func TestTypedFiltersAreCountedAside(t *testing.T) {
	s := newSeeker(t, many)
	first := s.press("/", "t", "p", ":", "3")
	s.wantNote("… of 5120")
	if first != nil {
		t.Error("two texts are sought at once")
	}
	s = newSeeker(t, many)
	s.press("/")
	cmd := s.press("t")
	s.press("p", ":", "3")
	if cmd = s.find(cmd); cmd == nil { // "t"
		t.Fatal("what was typed meanwhile is not sought")
	}
	s.wantNote("… of 5120")
	if s.find(cmd) != nil {
		t.Error("what is known is sought again")
	}
	s.wantNote("640 of 5120")
	if s.press("!"); !s.prompt.mistake {
		t.Error("a mistake waits")
	}
	s.press("backspace")
	s.wantNote("640 of 5120")
	s.press("enter")
	got := len(s.work.state.Matched())
	if got != 640 || s.work.state.RankFilter() != "tp:3" {
		t.Errorf("%q keeps %d ranks", s.work.state.RankFilter(), got)
	}
}

// A filter that is kept before its ranks are known filters once they are, also
// if other pictures have come meanwhile; the one before holds until then.
func TestAFilterIsKeptOnceItsRanksAreFound(t *testing.T) {
	s := newSeeker(t, many)
	s.press("/")
	cmd := s.press("t")
	s.press("p", ":", "3", "enter")
	if s.prompt != nil || s.work.state.RankFilter() != "" {
		t.Fatalf("the page is filtered by %q before its ranks are known", s.work.state.RankFilter())
	}
	cmd = s.find(cmd)
	s.Update(updateMsg{s.picture()}) // the ranks that are sought now are of the one before
	if cmd = s.find(cmd); s.work.state.RankFilter() != "" {
		t.Fatal("ranks of an older picture filter")
	}
	s.find(cmd)
	got := len(s.work.state.Matched())
	if got != 640 || s.work.state.RankFilter() != "tp:3" {
		t.Errorf("%q keeps %d ranks", s.work.state.RankFilter(), got)
	}
}

// A new picture that was prepared for another filter is prepared again, aside,
// and then shown.
func TestAPictureIsPreparedForThePresentFilter(t *testing.T) {
	s := newSeeker(t, many)
	s.press("/")
	for _, k := range []string{"t", "p", ":", "3"} {
		if cmd := s.press(k); cmd != nil {
			s.find(cmd)
		}
	}
	s.press("enter")
	if s.work.state.RankFilter() != "tp:3" {
		t.Fatalf("filtered by %q", s.work.state.RankFilter())
	}
	next, was := s.picture(), s.work.state.Roster
	_, cmd := s.Update(updateMsg{next})
	if s.work.state.Roster != was {
		t.Fatal("ranks are sought while the loop waits")
	}
	s.Update(cmd().(updateMsg))
	if s.work.state.Feed != next || len(s.work.state.Matched()) != 640 {
		t.Error("the picture does not come")
	}
	prepared := s.picture()
	s.work.search.prepareState(prepared) // as whoever waits for the feed does
	if s.Update(updateMsg{prepared}); s.work.state.Feed != prepared {
		t.Error("a picture that is ready waits")
	}
}

// In a small job all is found while the key is handled.
func TestFewRanksAreFoundAtOnce(t *testing.T) {
	s := newSeeker(t, enginetest.Options{})
	if cmd := s.press("/", "t", "p", ":", "0"); cmd != nil {
		t.Error("ranks are sought aside")
	}
	s.wantNote("8 of 8")
}

// What a typed key of a filter costs the event loop at 100,000 ranks.
func BenchmarkFilterKey100k(b *testing.B) {
	s := newSeeker(b, huge)
	s.press("/", "g")
	keys := []tea.KeyPressMsg{keyMsg("3"), keyMsg("backspace")}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Update(keys[i%2])
	}
}
