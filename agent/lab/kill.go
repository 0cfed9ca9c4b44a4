package lab

import (
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
)

// Kill is one death or freeze that the lab dealt, for the report.
type Kill struct {
	Target    string `json:"target"` // console, agent NODE, rank RANK, node NODE
	Frozen    bool   `json:"frozen,omitempty"`
	Step      string `json:"step,omitempty"`
	Point     string `json:"point,omitempty"`
	Iteration int64  `json:"iteration"` // finished before it
	UnixNs    int64  `json:"unix_ns"`   // when it was dealt
	Error     string `json:"error,omitempty"`

	Recovery string `json:"recovery,omitempty"` // that names it
	// from then until the engine was certain; null = never, or no fault of the job
	DetectedMs *float64 `json:"detected_ms"`
}

// String is the death in a few words, such as "rank 5 killed".
func (k Kill) String() string {
	verb := " killed"
	if k.Frozen {
		verb = " frozen"
	}
	if k.Point != "" {
		verb += " at " + k.Point
	}
	return k.Target + verb
}

// dealDeaths carries out the deaths that are due. Called by the loop.
func (l *Lab) dealDeaths(step string, r falcon.Rank) {
	for _, e := range l.faults.deathsBefore(l.records.done, step, r) {
		if e.AfterMs > 0 {
			l.runAfter(time.Duration(e.AfterMs*float64(time.Millisecond)), func() {
				l.postEvent(event{call: func() { l.strikeVictim(e) }})
			})
		} else {
			l.strikeVictim(e)
		}
	}
	for _, e := range l.faults.thawsBefore(l.records.done) {
		if v, err := l.sc.parseVictim(e.Freeze); err == nil {
			_ = l.signalTarget(v, unix.SIGCONT) // gone already is as good
		}
	}
}

// runAfter calls do when d is over, unless the lab closes before.
func (l *Lab) runAfter(d time.Duration, do func()) {
	l.wait.Go(func() {
		select {
		case <-time.After(d):
			do()
		case <-l.closing.Done():
		}
	})
}

// strikeVictim deals a death or a freeze, as checked when it was read, and notes when.
func (l *Lab) strikeVictim(e Event) {
	v, err := l.sc.parseVictim(e.Kill + e.Freeze)
	k := Kill{
		Target:    v.String(),
		Frozen:    e.Freeze != "",
		Step:      e.OnStep,
		Point:     e.Point,
		Iteration: l.records.done,
		UnixNs:    time.Now().UnixNano(),
	}
	if err == nil {
		err = l.signalTarget(v, e.killSignal())
	}
	if err != nil {
		k.Error = err.Error()
	}
	l.kills = append(l.kills, k)
}

// killSignal is what ends or stops the victim.
func (e Event) killSignal() unix.Signal {
	if e.Freeze != "" {
		return unix.SIGSTOP
	}
	return unix.SIGKILL
}

// reachedPoint takes a rank's line that it has come to the point where it stops, or,
// with point "", that it has ended without one: the rest of its node goes with
// it. unixNs is when.
func (l *Lab) reachedPoint(r falcon.Rank, point string, unixNs int64) {
	e, ok := l.faults.eventAtPoint(r, point)
	if !ok {
		return
	}
	v, err := l.sc.parseVictim(e.Kill + e.Freeze)
	if err != nil {
		return // checked when the scenario was read
	}
	if v.what == "node" {
		l.strikeVictim(e)
		return
	}
	l.kills = append(l.kills, Kill{
		Target:    v.String(),
		Frozen:    e.Freeze != "",
		Point:     e.Point,
		Iteration: l.records.done,
		UnixNs:    unixNs,
	})
}

// signalTarget reaches the engine, an agent, one rank, or a node with all that runs on
// it. A node that is killed stays dead.
func (l *Lab) signalTarget(v victim, sig unix.Signal) error {
	s := l.Status()
	switch v.what {
	case "console":
		return signalPid(s.EnginePid, sig)
	case "agent":
		return signalPid(s.AgentPids[string(v.node)], sig)
	case "rank":
		return signalTree(s.RankPids[strconv.Itoa(int(v.rank))], sig)
	}
	a, err := l.agentOfNode(v.node)
	if err != nil {
		return err
	}
	if sig == unix.SIGKILL {
		a.lost.Store(true)
	}
	return l.signalNode(a, sig)
}

func (l *Lab) agentOfNode(node falcon.Node) (*agentNode, error) {
	for _, a := range l.agents {
		if a.setup.Node == node {
			return a, nil
		}
	}
	return nil, fmt.Errorf("lab: there is no node %q", node)
}

func signalPid(pid int, sig unix.Signal) error {
	if pid < 1 {
		return fmt.Errorf("lab: it does not run")
	}
	return unix.Kill(pid, sig)
}

// signalNode reaches the node's group, and the ranks that its agent started in
// sessions of their own.
func (l *Lab) signalNode(a *agentNode, sig unix.Signal) error {
	err := unix.Kill(-a.processGroup(), sig)
	mark := envNode + "=" + strconv.Itoa(a.setup.Index)
	for _, pid := range processesOf(l.place.dir, mark) {
		_ = unix.Kill(pid, sig) // reached with the group, or gone, already
	}
	return err
}
