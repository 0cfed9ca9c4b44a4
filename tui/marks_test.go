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
	rank, picks := m.state.Rank(), len(m.state.Picks())
	if picks == 0 || m.zoomed[key.Ranks] != 1 || m.look == nil {
		t.Fatalf("the scene: %d picks, pane %d", picks, m.zoomed[key.Ranks])
	}
	for _, k := range []string{"z", "u", "w", "5", "]", "8"} {
		send(m, k)
	}
	send(m, "'")
	if s := text(m); !containsAll(s, "GO TO WHICH MARK?", "x  rank/") {
		t.Fatalf("the list:\n%s", s)
	}
	send(m, "x")
	if m.current != key.Ranks || m.state.Rank() != rank || len(m.state.Picks()) != picks || m.zoomed[key.Ranks] != 1 || m.look == nil || m.look.id != "INC-0001" || m.state.Following() {
		t.Errorf("back on %s, rank %d, %d picks, pane %d, %+v", m.current, m.state.Rank(), len(m.state.Picks()), m.zoomed[key.Ranks], m.look)
	}
}

// What was left at the present incident and the worst rank follows both again.
func TestAMarkOfThePresentFollowsIt(t *testing.T) {
	m, _, _ := severalOpen(t)
	for _, k := range []string{"5", "b", "p", "[", "2", "l", "'", "p"} {
		send(m, k)
	}
	if m.current != key.Ladder || m.look != nil || !m.state.Following() {
		t.Errorf("on %s, %+v, following %v", m.current, m.look, m.state.Following())
	}
}

// While a letter is awaited no key does anything else.
func TestAMarksLetterIsNoCommand(t *testing.T) {
	m, src, _ := severalOpen(t)
	send(m, "'")
	if m.marks.asks != "" || !containsAll(text(m), "there are no marks yet") {
		t.Errorf("with no marks:\n%s", text(m))
	}
	for _, k := range []string{"b", "a", "'", "v", "'", "F", "b", "esc", "'", "enter"} {
		send(m, k)
	}
	if m.dialog != nil || src.freezes != 0 || len(m.marks.at) != 1 || m.marks.asks != "" {
		t.Errorf("%v, %d freezes, %d marks", m.dialog, src.freezes, len(m.marks.at))
	}
}
