package lab

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
)

// Trouble is trouble with agents and storage, for tests of what must not harm
// the job. All of it may be called from any goroutine, while the lab runs.
type Trouble struct{ lab *Lab }

// Trouble is what makes trouble in this lab.
func (l *Lab) Trouble() Trouble { return Trouble{l} }

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
	CutDrop  CutMode = "drop"  // nothing comes through, without an error
)

var errAway = errors.New("lab: give a time from 0 to 1h")

func checkDuration(d time.Duration) error {
	if d < 0 || d > time.Hour {
		return errAway
	}
	return nil
}

// signalAgent signals a node's agent, for trouble that lasts so long.
func (t Trouble) signalAgent(node string, d time.Duration, sig unix.Signal) error {
	a, err := t.lab.agentOfNode(falcon.Node(node))
	if err = errors.Join(err, checkDuration(d)); err != nil {
		return err
	}
	if sig == unix.SIGTERM || sig == unix.SIGKILL {
		a.away.Store(int64(d))
	}
	return t.lab.signalTarget(victim{what: "agent", node: a.setup.Node}, sig)
}

// StopAgent ends a node's agent as a service manager does (SIGTERM); KillAgent
// with -9. It is started again after so long, 0 for the usual second.
func (t Trouble) StopAgent(node string, away time.Duration) error {
	return t.signalAgent(node, away, unix.SIGTERM)
}

// KillAgent is StopAgent with SIGKILL.
func (t Trouble) KillAgent(node string, away time.Duration) error {
	return t.signalAgent(node, away, unix.SIGKILL)
}

// FreezeAgent stops a node's agent (SIGSTOP) and lets it go on after so long, 0
// for ThawAgent.
func (t Trouble) FreezeAgent(node string, d time.Duration) error {
	if err := t.signalAgent(node, d, unix.SIGSTOP); err != nil || d == 0 {
		return err
	}
	t.lab.runAfter(d, func() { _ = t.ThawAgent(node) }) // gone already is as good
	return nil
}

// ThawAgent lets a frozen agent go on.
func (t Trouble) ThawAgent(node string) error {
	return t.signalAgent(node, 0, unix.SIGCONT)
}

// CutAgent cuts a node's agent off from the engine for so long; 0 mends it.
func (t Trouble) CutAgent(node string, mode CutMode, d time.Duration) error {
	a, err := t.lab.agentOfNode(falcon.Node(node))
	if err = errors.Join(err, checkDuration(d)); err != nil {
		return err
	}
	if mode != CutReset && mode != CutDrop {
		return fmt.Errorf("lab: a cut is %s or %s, not %q", CutReset, CutDrop, mode)
	}
	return t.writeUntil(cutFile+string(a.setup.Node), string(mode)+" ", d, 0)
}

// StopEngine ends the engine as a service manager does (SIGTERM). It is started again after so
// long, 0 for as soon as usual: its files are at rest meanwhile.
func (t Trouble) StopEngine(away time.Duration) error {
	if err := checkDuration(away); err != nil {
		return err
	}
	t.lab.engineAway.Store(int64(away))
	return t.lab.signalTarget(victim{what: "console"}, unix.SIGTERM)
}

// EngineAway is how long the engine that has just ended is to stay away, 0 for as usual. It
// holds for one end.
func (t Trouble) EngineAway() time.Duration {
	return time.Duration(t.lab.engineAway.Swap(0))
}

// writeUntil writes a file that holds for so long, from an iteration on.
func (t Trouble) writeUntil(name, prefix string, d time.Duration, from int64) error {
	return replaceFile(
		filepath.Join(t.lab.place.dir, name),
		prefix+fmt.Sprint(time.Now().Add(d).UnixNano(), from),
	)
}

// carryOut carries out a request.
func (t Trouble) carryOut(r Request) error {
	switch r.Op {
	case "stop-agent":
		return t.StopAgent(r.Target, r.For)
	case "kill-agent":
		return t.KillAgent(r.Target, r.For)
	case "freeze-agent":
		return t.FreezeAgent(r.Target, r.For)
	case "thaw-agent":
		return t.ThawAgent(r.Target)
	case "cut-agent":
		return t.CutAgent(r.Target, r.Mode, r.For)
	case "step-clock":
		return t.StepClock(r.For)
	case "stop-engine":
		return t.StopEngine(r.For)
	case "stall":
		return t.stallRequest(r.Target, r.For)
	}
	return fmt.Errorf("unknown request %q", r.Op)
}
