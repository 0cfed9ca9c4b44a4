package tui

import (
	"testing"

	"github.com/failslow/falcon/tui/key"
)

// A mark leads back to page, incident, selection, filter and pane as they were.
func TestAMarkComesBack(t *testing.T) {
	m, _, _ := severalOpen(t)
	for _, k := range []string{"5", "[", "2", "l", "space", "z", "b", "x"} {
		send(m, k)
	}
	rank, picks := m.work.state.Rank(), len(m.work.state.Picks())
	if picks == 0 || m.work.zoomed[key.Ranks] != 1 || m.work.look == nil {
		t.Fatalf("the scene: %d picks, pane %d", picks, m.work.zoomed[key.Ranks])
	}
	for _, k := range []string{"z", "u", "w", "5", "]", "8"} {
		send(m, k)
	}
	send(m, "'")
	if s := text(m); !containsAll(s, "GO TO WHICH MARK?", "x  rank/") {
		t.Fatalf("the list:\n%s", s)
	}
	send(m, "x")
	if m.work.current != key.Ranks ||
		m.work.state.Rank() != rank ||
		len(m.work.state.Picks()) != picks ||
		m.work.zoomed[key.Ranks] != 1 ||
		m.work.look == nil ||
		m.work.look.id != "INC-0001" ||
		m.work.state.Following() {
		t.Errorf("back on %s, rank %d, %d picks, pane %d, %+v",
			m.work.current, m.work.state.Rank(), len(m.work.state.Picks()),
			m.work.zoomed[key.Ranks], m.work.look)
	}
}

// What was left at the present incident and the worst rank follows both again.
func TestAMarkOfThePresentFollowsIt(t *testing.T) {
	m, _, _ := severalOpen(t)
	for _, k := range []string{"5", "b", "p", "[", "2", "l", "'", "p"} {
		send(m, k)
	}
	if m.work.current != key.Ladder ||
		m.work.look != nil ||
		!m.work.state.Following() {
		t.Errorf("on %s, %+v, following %v",
			m.work.current, m.work.look, m.work.state.Following())
	}
}

// While a letter is awaited no key does anything else.
func TestAMarksLetterIsNoCommand(t *testing.T) {
	m, src, _ := severalOpen(t)
	send(m, "'")
	if m.work.marks.asks != "" || !containsAll(text(m), "there are no marks yet") {
		t.Errorf("with no marks:\n%s", text(m))
	}
	for _, k := range []string{"b", "a", "'", "v", "'", "F", "b", "esc", "'", "enter"} {
		send(m, k)
	}
	if m.decisions.dialog != nil ||
		src.freezes != 0 ||
		len(m.work.marks.at) != 1 ||
		m.work.marks.asks != "" {
		t.Errorf("%v, %d freezes, %d marks",
			m.decisions.dialog, src.freezes, len(m.work.marks.at))
	}
}
