package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
)

// ErrTerminal is wrapped when the terminal can't be driven.
var ErrTerminal = errors.New("tui: terminal")

// Terminal is where a console runs.
type Terminal struct {
	In  io.Reader
	Out io.Writer
	Env []string // TERM, COLORTERM, NO_COLOR …; nil = the process's own

	Remote *Remote // nil = the process's own terminal
}

// Remote is a terminal at the other end of a connection.
type Remote struct {
	Size  Size        // when the console opens
	Sizes <-chan Size // what it changes to
}

// Size is a terminal's, in cells.
type Size struct{ W, H int }

// framesPerSecond caps redraws; data comes at 5 Hz, so that this bounds only
// how soon a key shows.
const framesPerSecond = 60

// Run runs a console until the operator leaves or ctx ends; the terminal is
// restored either way, after a panic too. Ending by ctx is no error.
func Run(ctx context.Context, src Source, t Terminal, opts Options) error {
	opts.probe = t.Remote != nil && mayAnswer(t.Env)
	m, err := New(src, opts)
	if err != nil {
		return err
	}
	p := newProgram(ctx, m, t, remoteOptions(t)...)
	if t.Remote != nil {
		stop := follow(p, t.Remote.Sizes)
		defer stop()
	}
	_, err = p.Run()
	if err == nil || ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrTerminal, err)
}

// remoteOptions are for a terminal that this process has no signals from and
// can't ask for its size. Its colours are what its environment says, until it
// answers what it can show: TERM alone, which is all that SSH passes on, tells
// 256 colours at most.
func remoteOptions(t Terminal) []tea.ProgramOption {
	if t.Remote == nil {
		return nil
	}
	return []tea.ProgramOption{
		tea.WithWindowSize(t.Remote.Size.W, t.Remote.Size.H),
		tea.WithColorProfile(colorprofile.Env(t.Env)),
		tea.WithoutSignals(), tea.WithoutSignalHandler(),
	}
}

// mayAnswer says whether a terminal is worth asking for its colours: those
// that know no such question would print it, and who wants none isn't asked.
func mayAnswer(env []string) bool {
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if name == "NO_COLOR" && value != "" || name == "TERM" && (value == "linux" || strings.HasPrefix(value, "vt")) {
			return false
		}
	}
	return true
}

// follow tells the program of its terminal's sizes until stop, which waits. It
// blocks while the terminal is stalled, and holds up nobody but itself.
func follow(p *tea.Program, sizes <-chan Size) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case s := <-sizes:
				p.Send(tea.WindowSizeMsg{Width: s.W, Height: s.H})
			}
		}
	}()
	return func() { close(done); <-ended }
}

func newProgram(ctx context.Context, m *Model, t Terminal, more ...tea.ProgramOption) *tea.Program {
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithFPS(framesPerSecond), tea.WithInput(t.In), tea.WithOutput(t.Out)}
	if t.Env != nil {
		options = append(options, tea.WithEnvironment(t.Env))
	}
	return tea.NewProgram(m, append(options, more...)...)
}
