package postmortem

import (
	"context"
	"errors"
	"fmt"
	"io"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/themes"
)

// Screen is a document on a terminal.
type Screen struct {
	doc    *Document
	theme  *themes.Theme
	pal    *themes.Palette
	ascii  bool
	w, h   int
	at     int // evidence under the cursor, -1 = none
	open   int // evidence whose line is shown, -1 = none
	top    int // first row of the page that is seen
	follow bool
}

// New makes a screen. Nothing is drawn before the terminal's size is known.
func New(d *Document, theme *themes.Theme, pal *themes.Palette, ascii bool) *Screen {
	return &Screen{
		doc:   d,
		theme: theme,
		pal:   pal,
		ascii: ascii,
		at:    -1,
		open:  -1,
	}
}

// Init asks for nothing.
func (s *Screen) Init() tea.Cmd { return nil }

// Update takes keys and what the terminal says of itself.
func (s *Screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.w, s.h = msg.Width, msg.Height
	case tea.ColorProfileMsg:
		s.pal = s.theme.Palette(msg.Profile)
	case tea.KeyPressMsg:
		return s, s.key(msg.String())
	}
	return s, nil
}

func (s *Screen) key(k string) tea.Cmd {
	s.follow = false
	switch k {
	case "q", "esc", "ctrl+c":
		return tea.Quit
	case "down", "j":
		s.move(+1)
	case "up", "k":
		s.move(-1)
	case "enter":
		s.toggle()
	case "space", "pgdown", "ctrl+d":
		s.top += max(1, s.h-3)
	case "b", "pgup", "ctrl+u":
		s.top -= max(1, s.h-3)
	case "g", "home":
		s.top, s.at = 0, -1
	case "G", "end":
		s.top = len(s.doc.rows(s.w, s.open))
	}
	return nil
}

// move goes to the next evidence.
func (s *Screen) move(by int) {
	if len(s.doc.Evidence) == 0 {
		s.top += by
		return
	}
	s.at = max(0, min(s.at+by, len(s.doc.Evidence)-1))
	s.follow = true
}

// toggle shows the line of the evidence under the cursor, or hides it.
func (s *Screen) toggle() {
	if s.at < 0 && len(s.doc.Evidence) > 0 {
		s.at = 0
	}
	if s.follow = true; s.open == s.at {
		s.open = -1
		return
	}
	s.open = s.at
}

// View draws the screen.
func (s *Screen) View() tea.View {
	text := ""
	if s.w > 0 && s.h > 2 {
		text = s.draw()
	}
	v := tea.NewView(text)
	v.AltScreen = true
	v.WindowTitle = "falcon detect: " + s.doc.Kind
	return v
}

// ErrTerminal is wrapped when the terminal can't be driven.
var ErrTerminal = errors.New("postmortem: terminal")

// Run shows the screen until its reader leaves or ctx ends.
func (s *Screen) Run(ctx context.Context, in io.Reader, out io.Writer) error {
	p := tea.NewProgram(
		s,
		tea.WithContext(ctx),
		tea.WithoutSignalHandler(),
		tea.WithInput(in),
		tea.WithOutput(out),
	)
	if _, err := p.Run(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", ErrTerminal, err)
	}
	return nil
}
