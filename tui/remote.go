package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	uv "github.com/charmbracelet/ultraviolet"
)

// Remote is a terminal at the other end of a connection.
type Remote struct {
	Size  Size        // when the console opens
	Sizes <-chan Size // what it changes to
}

// runRemote runs a program on a terminal that this process has no signals from
// and can't ask for its size. What is typed is read beside the program, and
// may outlive it until In ends: the program's own reader would wait for ever
// with a key that no one takes any more, and keep the program with it.
func runRemote(ctx context.Context, m *Model, t Terminal) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	quiet := make(silence)
	typed := t.In
	t.In = quiet
	size := t.Remote.Size.bounded()
	p := newProgram(ctx, m, t,
		tea.WithWindowSize(size.W, size.H),
		tea.WithColorProfile(colorprofile.Env(t.Env)), // until it answers what it can show
		tea.WithoutSignals(), tea.WithoutSignalHandler())
	stop := followSizes(p, t.Remote.Sizes)
	defer stop()
	defer close(quiet)
	pumpInput(ctx, p, typed, terminalName(t.Env), end)
	_, err := p.Run()
	if cause := context.Cause(ctx); errors.Is(cause, errTyped) {
		return cause
	}
	return err
}

// errTyped ends a console whose terminal sends what can't be understood.
var errTyped = errors.New("the terminal sent what can't be read")

// silence is an input that gives nothing and ends when it is closed.
type silence chan struct{}

func (s silence) Read([]byte) (int, error) {
	<-s
	return 0, io.EOF
}

// pumpInput reads what is typed until in ends, and hands it to the program as long
// as there is one. The library's decoder panics on some sequences: whoever
// sends them ends this console, and not the engine's process with it.
func pumpInput(ctx context.Context, p *tea.Program, in io.Reader, term string, end context.CancelCauseFunc) {
	events := make(chan uv.Event)
	go func() {
		defer close(events)
		defer func() {
			if why := recover(); why != nil {
				end(fmt.Errorf("%w: %v", errTyped, why))
			}
		}()
		_ = uv.NewTerminalReader(in, term).StreamEvents(ctx, events) // in has ended, that is all
	}()
	go func() {
		for e := range events {
			p.Send(e)
		}
	}()
}

func terminalName(env []string) string {
	term := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "TERM="); ok {
			term = v
		}
	}
	return term
}

// mayAnswer reports whether a terminal is worth asking for its colours: TERM
// alone, which is all that SSH passes on, means 256 at most. Those that know
// no such question would print it, and who wants no colours isn't asked.
func mayAnswer(env []string) bool {
	for _, e := range env {
		if name, value, _ := strings.Cut(e, "="); name == "NO_COLOR" && value != "" {
			return false
		}
	}
	term := terminalName(env)
	return term != "linux" && !strings.HasPrefix(term, "vt")
}
