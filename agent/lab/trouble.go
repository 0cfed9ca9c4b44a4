package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Trouble with agents and storage, for tests of what must not harm the job. All
// of it may be called from any goroutine, while the lab runs.

// Files by which the lab reaches its processes.
const (
	stallFile = "stall" // of all trainers; see falcon-trainer
	cutFile   = "cut."  // and a node: of its agent; see falcon-agent
)

// CutMode is how an agent's connection to the engine is cut.
type CutMode string

// Modes of a cut.
const (
	CutReset CutMode = "reset" // connections end at once, and none can be made
	CutDrop  CutMode = "drop"  // nothing comes through, and nothing says so
)

var errAway = errors.New("lab: give a time from 0 to 1h")

func checkFor(d time.Duration) error {
	if d < 0 || d > time.Hour {
		return errAway
	}
	return nil
}

func (l *Lab) agentOf(node string) (*agentNode, error) {
	for _, a := range l.agents {
		if string(a.setup.Node) == node {
			return a, nil
		}
	}
	return nil, fmt.Errorf("lab: there is no node %q", node)
}

// StopAgent ends a node's agent as a service manager does (SIGTERM); KillAgent
// with -9. It is started again after so long, 0 for the usual second.
func (l *Lab) StopAgent(node string, away time.Duration) error {
	return l.endAgent(node, away, unix.SIGTERM)
}

// KillAgent is StopAgent with SIGKILL.
func (l *Lab) KillAgent(node string, away time.Duration) error {
	return l.endAgent(node, away, unix.SIGKILL)
}

func (l *Lab) endAgent(node string, away time.Duration, sig unix.Signal) error {
	a, err := l.agentOf(node)
	if err = errors.Join(err, checkFor(away)); err != nil {
		return err
	}
	a.away.Store(int64(away))
	return l.signal(victim{what: "agent", node: a.setup.Node}, sig)
}

// FreezeAgent stops a node's agent (SIGSTOP) and lets it go on after so long, 0
// for ThawAgent's word.
func (l *Lab) FreezeAgent(node string, d time.Duration) error {
	a, err := l.agentOf(node)
	if err = errors.Join(err, checkFor(d)); err != nil {
		return err
	}
	if err := l.signal(victim{what: "agent", node: a.setup.Node}, unix.SIGSTOP); err != nil || d == 0 {
		return err
	}
	l.after(d, func() { _ = l.ThawAgent(node) }) // gone already is as good
	return nil
}

// ThawAgent lets a frozen agent go on.
func (l *Lab) ThawAgent(node string) error {
	a, err := l.agentOf(node)
	if err != nil {
		return err
	}
	return l.signal(victim{what: "agent", node: a.setup.Node}, unix.SIGCONT)
}

// CutAgent cuts a node's agent off from the engine for so long; 0 mends it.
func (l *Lab) CutAgent(node string, mode CutMode, d time.Duration) error {
	a, err := l.agentOf(node)
	if err = errors.Join(err, checkFor(d)); err != nil {
		return err
	}
	if mode != CutReset && mode != CutDrop {
		return fmt.Errorf("lab: a cut is %s or %s, not %q", CutReset, CutDrop, mode)
	}
	return l.until(cutFile+string(a.setup.Node), string(mode)+" ", d, 0)
}

// stallAhead is how many iterations ahead a stall begins: all ranks must read of
// it before they come there.
const stallAhead = 3

// Stall has the job's storage give no data for so long: each rank sleeps in its
// own code at the begin of the same iteration, a few ahead of now. 0 ends it for
// those that come later.
func (l *Lab) Stall(d time.Duration) error {
	if err := checkFor(d); err != nil {
		return err
	}
	return l.until(stallFile, "", d, l.Status().Iteration+stallAhead)
}

// until writes a file that holds for so long, from an iteration on.
func (l *Lab) until(name, prefix string, d time.Duration, from int64) error {
	path := filepath.Join(l.place.dir, name)
	text := prefix + fmt.Sprintln(time.Now().Add(d).UnixNano(), from)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	return nil
}

// after calls do when d is over, unless the lab closes before.
func (l *Lab) after(d time.Duration, do func()) {
	l.wait.Go(func() {
		select {
		case <-time.After(d):
			do()
		case <-l.closing.Done():
		}
	})
}

// trouble carries out a request.
func (l *Lab) trouble(r Request) error {
	switch r.Op {
	case "stop-agent":
		return l.StopAgent(r.Target, r.For)
	case "kill-agent":
		return l.KillAgent(r.Target, r.For)
	case "freeze-agent":
		return l.FreezeAgent(r.Target, r.For)
	case "thaw-agent":
		return l.ThawAgent(r.Target)
	case "cut-agent":
		return l.CutAgent(r.Target, r.Mode, r.For)
	case "stall":
		return l.Stall(r.For)
	}
	return fmt.Errorf("unknown request %q", r.Op)
}
