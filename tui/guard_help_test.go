package tui

import (
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/keyguard"
)

// personGap is the time between two keys of a test's operator.
const personGap = 100 * time.Millisecond

// strides hold the times of keys of models without a program: tests that press keys are about
// other things than their pace, and a person's gap is between them.
var strides sync.Map // *Model → *stride

// stride is a clock that goes on with every key.
type stride struct {
	from func() time.Time
	by   time.Duration
}

func (s *stride) now() time.Time {
	return s.from().Add(s.by)
}

// pacePerson gives a model's keys a person's pace.
func pacePerson(m *Model) {
	s := &stride{from: m.now}
	m.decisions.keyTime = s.now
	strides.Store(m, s)
}

// pass lets time pass for a model's keys alone.
func pass(m *Model, d time.Duration) {
	if s, ok := strides.Load(m); ok {
		s.(*stride).by += d
	}
}

// behold has the terminal answer what it was asked.
func behold(m *Model) {
	for _, q := range m.decisions.guard.Pending() {
		m.Update(sentMsg{q.Number})
		m.Update(tea.CursorPositionMsg{X: q.X, Y: q.Y})
	}
}

// stayQuiet lets the time pass in which no key may follow a confirmation.
func stayQuiet(m *Model) tea.Cmd {
	why, left := m.decisions.guard.Block(m.decisions.keyTime())
	if why != keyguard.Held {
		return nil
	}
	pass(m, left)
	_, cmd := m.Update(armedMsg{})
	return cmd
}
