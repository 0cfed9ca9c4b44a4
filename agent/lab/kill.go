package lab

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/failslow/falcon"
)

// Kill is one death that the lab dealt, for the report.
type Kill struct {
	Target    string `json:"target"` // console, agent NODE, rank RANK, node NODE
	Step      string `json:"step,omitempty"`
	Iteration int64  `json:"iteration"` // finished before it
	Error     string `json:"error,omitempty"`
}

// killedRank is the rank that a kill names, if it names one.
func killedRank(kill string) (falcon.Rank, bool) {
	r, err := strconv.Atoi(strings.TrimPrefix(kill, "rank "))
	return falcon.Rank(r), err == nil && strings.HasPrefix(kill, "rank ")
}

// deal carries out the deaths that are due. Called by the loop.
func (l *Lab) deal(step string, r falcon.Rank) {
	for _, e := range l.faults.deaths(l.records.done, step, r) {
		k := Kill{Target: e.Kill, Step: e.OnStep, Iteration: l.records.done}
		if err := l.kill(e.Kill); err != nil {
			k.Error = err.Error()
		}
		l.kills = append(l.kills, k)
	}
}

// kill ends what the scenario names, as checked when it was read.
func (l *Lab) kill(target string) error {
	what, which, _ := strings.Cut(target, " ")
	s := l.Status()
	switch what {
	case "console":
		return killPid(s.EnginePid)
	case "agent":
		return killPid(s.AgentPids[which])
	case "rank", "node":
		return l.signal(which, unix.SIGKILL)
	}
	return fmt.Errorf("%q can't be killed", target)
}

func killPid(pid int) error {
	if pid < 1 {
		return fmt.Errorf("it does not run")
	}
	return unix.Kill(pid, unix.SIGKILL)
}

// signal reaches one rank, or a node with all that runs on it.
func (l *Lab) signal(target string, sig unix.Signal) error {
	s := l.Status()
	if pid, ok := s.RankPids[target]; ok {
		return unix.Kill(pid, sig)
	}
	for _, a := range l.agents {
		if a.setup.Node == falcon.Node(target) {
			return l.signalNode(a, sig)
		}
	}
	return fmt.Errorf("%q is neither a rank (0 to %d) nor a node (n0 to n%d)", target, l.sc.Layout.Layout().World()-1, l.sc.allNodes()-1)
}

// signalNode reaches the node's group, and the ranks that its agent started in
// sessions of their own.
func (l *Lab) signalNode(a *agentNode, sig unix.Signal) error {
	err := unix.Kill(-a.group(), sig)
	mark := envNode + "=" + strconv.Itoa(a.setup.Index)
	for _, pid := range processesOf(l.place.dir, mark) {
		_ = unix.Kill(pid, sig) // reached with the group, or gone, already
	}
	return err
}
