package tui

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	tty "golang.org/x/term"
)

// Bounds of a screen, in cells. The library keeps a picture of every cell, so that a terminal
// of any size, which nobody reads, would take any memory.
const (
	columnsMax = 600
	rowsMax    = 300
)

// Size is a terminal's, in cells.
type Size struct{ W, H int }

// bounded is the part of a terminal that is drawn into.
func (s Size) bounded() Size {
	return Size{W: min(max(1, s.W), columnsMax), H: min(max(1, s.H), rowsMax)}
}

// oversizeMsg says that a terminal is larger than what is drawn into.
type oversizeMsg struct{ size Size }

func (m oversizeMsg) noteText() string {
	b := m.size.bounded()
	return fmt.Sprintf("this terminal has %d×%d cells: the first %d×%d are drawn into",
		m.size.W, m.size.H, b.W, b.H)
}

// sendSize tells a program its terminal's size.
func sendSize(p *tea.Program, s Size) {
	b := s.bounded()
	p.Send(tea.WindowSizeMsg{Width: b.W, Height: b.H})
	if b.W < s.W || b.H < s.H {
		p.Send(oversizeMsg{s})
	}
}

// followSizes sends the program its terminal's sizes until stop, which waits. It
// blocks while the terminal is stalled, and holds up no one but itself.
func followSizes(p *tea.Program, sizes <-chan Size) (stop func()) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case s := <-sizes:
				sendSize(p, s)
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// stallWait is how long a program may take to end once it is told to: one whose terminal takes
// no bytes never would.
const stallWait = 3 * time.Second

// runLocal runs a program on the process's own terminal.
func runLocal(ctx context.Context, m tea.Model, t Terminal) error {
	out, ok := t.Out.(*os.File)
	if !ok || !tty.IsTerminal(int(out.Fd())) {
		_, err := newProgram(ctx, m, t).Run()
		return err
	}
	if t.Env == nil {
		t.Env = os.Environ()
	}
	size := terminalSize(out)
	b := size.bounded()
	p := newProgram(
		ctx,
		m,
		t,
		tea.WithWindowSize(b.W, b.H),
		tea.WithColorProfile(colorprofile.Detect(out, t.Env)),
	)
	sizes, unwatch := watchTerminal(out)
	defer unwatch()
	sizes <- size // again, for its note
	stop := followSizes(p, sizes)
	restore := keepState(t)
	ended := make(chan error, 1)
	go func() {
		_, err := p.Run()
		ended <- err
	}()
	select {
	case err := <-ended:
		stop()
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		stop()
		return err
	case <-time.After(stallWait):
		restore()
		return ctx.Err()
	}
}

// keepState returns what puts the terminal's mode back, for a program that can't.
func keepState(t Terminal) (restore func()) {
	in, ok := t.In.(*os.File)
	if !ok {
		return func() {}
	}
	state, err := tty.GetState(int(in.Fd()))
	if err != nil {
		return func() {}
	}
	return func() { _ = tty.Restore(int(in.Fd()), state) } // the process ends now, whatever comes of it
}

// terminalSize is a terminal's size; one that can't be determined is the usual one.
func terminalSize(f *os.File) Size {
	w, h, err := tty.GetSize(int(f.Fd()))
	if err != nil || w <= 0 || h <= 0 {
		return Size{W: 80, H: 24}
	}
	return Size{W: w, H: h}
}

// watchTerminal passes a terminal's newest size on whenever it changes, until stop.
func watchTerminal(f *os.File) (sizes chan Size, stop func()) {
	sizes = make(chan Size, 1)
	changed := make(chan os.Signal, 1)
	done := make(chan struct{})
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-changed:
			}
			select {
			case <-sizes: // no one took the older one
			default:
			}
			select {
			case sizes <- terminalSize(f):
			case <-done:
				return
			}
		}
	}()
	return sizes, func() {
		signal.Stop(changed)
		close(done)
	}
}
