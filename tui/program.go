package tui

import (
	"context"
	"errors"
	"fmt"
	"io"

	tea "charm.land/bubbletea/v2"

	"github.com/failslow/falcon/tui/feed"
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

// framesPerSecond caps redraws; with data at 5 Hz it bounds how soon a key shows.
const framesPerSecond = 60

// Run runs a console until the operator leaves or ctx ends; the terminal is
// restored either way, after a panic too. Ending by ctx is no error.
func Run(ctx context.Context, src feed.Source, t Terminal, opts Options) error {
	opts.probe = t.Remote != nil && mayAnswer(t.Env)
	m, err := New(src, opts)
	if err != nil {
		return err
	}
	if t.Remote != nil {
		err = runRemote(ctx, m, t)
	} else {
		err = runLocal(ctx, m, t)
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrTerminal, err)
}

// newProgram leaves signals to whoever made ctx: the library's own handler
// waits for an event loop that the same signal may have ended by ctx.
func newProgram(ctx context.Context, m tea.Model, t Terminal, more ...tea.ProgramOption) *tea.Program {
	out := &outlet{to: t.Out}
	options := []tea.ProgramOption{
		tea.WithContext(ctx),
		tea.WithoutSignalHandler(),
		tea.WithFPS(framesPerSecond),
		tea.WithInput(t.In),
		tea.WithOutput(out),
	}
	if t.Env != nil {
		options = append(options, tea.WithEnvironment(t.Env))
	}
	p := tea.NewProgram(m, append(options, more...)...)
	out.send = p.Send
	return p
}
