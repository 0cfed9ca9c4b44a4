package restart

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
)

// Input is one of the types below.
type Input interface{ input() }

type (
	// Checkpointed is the outcome of an order after which the processes leave.
	Checkpointed struct {
		Order  uint64
		Epoch  uint64 // of the job
		Resume int64  // first iteration after the checkpoint
		Home   falcon.Placement
	}
	// Demanded is a recovery's order to restart the whole job. It stays without
	// effect while a restart is in progress, and when it is given again.
	Demanded struct {
		Launch falcon.Launch
		Resume int64
		Home   falcon.Placement // "" = the rank has ended or is fenced
		Reason string
	}
	// Planned is what the planner wants launched once all processes have left.
	Planned struct{ Launch *falcon.Launch }
	// Refused is a node's refusal of a command.
	Refused struct {
		NodeCommand
		Reason string
	}
	// Ended is a launched rank that has ended with success.
	Ended struct {
		Generation uint64
		Rank       falcon.Rank
	}
	// Described is the job, described by all of its ranks.
	Described struct {
		Epoch      uint64
		Generation uint64
		Ranks      int
	}
	// Superseded is a job epoch that was begun from outside.
	Superseded struct{}
)

func (Checkpointed) input() {}
func (Demanded) input()     {}
func (Planned) input()      {}
func (Refused) input()      {}
func (Ended) input()        {}
func (Described) input()    {}
func (Superseded) input()   {}

// World is what the machine asks of the cluster.
type World interface {
	// a rank of home whose process is not known to have ended, "" = none
	Running(home falcon.Placement) string
	Lost(l falcon.Launch) string    // a rank of a launch that has ended badly, and how; "" = none
	Missing(l falcon.Launch) string // what a launch waits for
	Alive() int                     // ranks whose processes run
	Fenced(n falcon.Node) bool
	Done(c NodeCommand) bool // the node has carried it out
	Hears() bool             // silence means something: the engine hears its nodes
}

// Ready is what the inputs since Advance have led to, in the order in which it is to be carried
// out.
type Ready struct {
	Changed  bool   // State is new, and to be made durable
	Ended    *Ended // to be made durable; State has it
	Notes    []Note
	RanToEnd bool      // the launch has run to its end before it was described as the job
	Left     *NoLaunch // for the planner
	Launched *Launched // for the machine that planned the launch
	Stops    bool      // State's stop commands go out once it is durable
	Launches bool      // so do its launch commands
}

// Note is a line for operators.
type Note struct {
	Kind     string
	Severity int32
	Text     string
}

// NoLaunch is the end of the processes' leaving: all are gone, or no launch follows.
type NoLaunch struct {
	Order  uint64
	Reason string // "" = a launch can be planned
}

// Launched is how a launch has come out.
type Launched struct {
	Generation uint64
	Failed     string
	Recovery   bool             // a recovery has planned it, else the planner
	Placement  falcon.Placement // of the recovery's launch
}

// Machine is one restart after the other.
type Machine struct {
	cfg   Config
	state State
	// the phase's time runs from here: from its begin, an engine's start, or when the
	// nodes are heard again
	begun  time.Time
	look   func(now time.Time) World
	nextID func() uint64
	out    Ready
}

// New makes the machine go on from a state. It looks at the cluster as it is at an input's time;
// nextID gives out command ids that are durable with the state that holds them.
func New(cfg Config, s State, look func(now time.Time) World, nextID func() uint64) *Machine {
	return &Machine{
		cfg:    cfg,
		state:  s,
		look:   look,
		nextID: nextID,
	}
}

// State is what is to be durable. It must not be changed.
func (m *Machine) State() State { return m.state }

// Restored is what others may not have heard before a restart of the engine. The
// phase gets its whole time again: what happened meanwhile is yet to be reported.
func (m *Machine) Restored(now time.Time) {
	m.begun = now
	if m.state.Phase == Left {
		m.allLeft(now)
	}
}

// Step takes one input.
func (m *Machine) Step(now time.Time, in Input) {
	w := m.look(now)
	switch in := in.(type) {
	case Checkpointed:
		m.turnTo(
			now,
			State{
				Order:  in.Order,
				Epoch:  in.Epoch,
				Resume: in.Resume,
				Home:   in.Home,
			},
			Leaving,
		)
		m.note("action", 1,
			"checkpoint of order %d is written; a restart begins with iteration %d; the processes are leaving",
			in.Order, in.Resume)
	case Demanded:
		m.demand(now, w, in)
	case Planned:
		m.launch(now, in.Launch)
	case Refused:
		m.refused(now, w, in)
	case Ended:
		if m.state.Phase == Launching && m.state.NoteEnded(in.Generation, in.Rank) {
			m.out.Ended = &in
		}
	case Described:
		m.described(now, in)
	case Superseded:
		m.superseded(now)
	}
}

// Ready is what is to be carried out; the caller carries it out and calls Advance.
func (m *Machine) Ready() Ready { return m.out }

// Advance says that what Ready gave is carried out.
func (m *Machine) Advance() { m.out = Ready{} }

func (m *Machine) turnTo(now time.Time, s State, phase Phase) {
	s.Phase = phase
	s.SinceNs = now.UnixNano()
	m.state = s
	m.begun = now
	m.out.Changed = true
}

func (m *Machine) note(kind string, severity int32, format string, args ...any) {
	m.out.Notes = append(m.out.Notes, Note{kind, severity, fmt.Sprintf(format, args...)})
}

func (m *Machine) demand(now time.Time, w World, in Demanded) {
	if m.state.Active() ||
		m.state.Launch != nil && m.state.Launch.Generation >= in.Launch.Generation {
		return // given again
	}
	next := in.Launch
	s := State{
		Home:   in.Home,
		Epoch:  m.state.Epoch,
		Next:   &next,
		Resume: in.Resume,
	}
	m.stopOlder(w, &s, next.Generation, in.Home.SortedNodes())
	m.turnTo(now, s, Leaving)
	m.note("recovery", 2, "the whole job is restarted from its newest checkpoint: %s", in.Reason)
}

// stopOlder has nodes end what is left of earlier generations. A fenced node is
// stopped by its fence.
func (m *Machine) stopOlder(w World, s *State, generation uint64, nodes []falcon.Node) {
	s.Stop = &Stop{Generation: generation}
	for _, n := range nodes {
		if !w.Fenced(n) {
			s.Stop.Commands = append(s.Stop.Commands, NodeCommand{n, m.nextID()})
		}
	}
	m.out.Stops = true
}

// Tick makes the moves that are due. No phase ends for want of reports that could
// not come.
func (m *Machine) Tick(now time.Time) {
	w := m.look(now)
	if !w.Hears() {
		m.begun = now
	}
	waited := now.Sub(m.begun)
	switch m.state.Phase {
	case Leaving:
		if who := w.Running(m.state.Home); who == "" {
			m.turnTo(now, m.state, Left)
			m.allLeft(now)
		} else if waited > m.cfg.LeaveLimit() {
			m.endWithout(now, fmt.Sprintf("%s has not ended %s after the checkpoint",
				who, m.cfg.LeaveLimit()))
		}
	case Left:
		if waited > LeftWait {
			m.endWithout(now, fmt.Sprintf(
				"no launch was planned within %s of the processes' end: start the job by hand",
				LeftWait,
			))
		}
	case Launching:
		m.watchLaunch(now, w, waited)
	case Clearing:
		if m.cleared(w) && w.Alive() == 0 || waited > m.cfg.LeaveLimit() {
			m.turnTo(now, m.state, Over)
			m.launchOver()
		}
	}
}

// allLeft begins the launch that a recovery has planned, or asks for a plan.
func (m *Machine) allLeft(now time.Time) {
	if m.state.Next != nil {
		m.launch(now, m.state.Next)
		return
	}
	m.out.Left = &NoLaunch{Order: m.state.Order}
}

// launch gives every node of a launch a command.
func (m *Machine) launch(now time.Time, l *falcon.Launch) {
	s := m.state
	s.Launch = l
	s.Commands = nil
	s.Ended = nil
	s.Failed = ""
	s.Deadline = now.Add(m.cfg.launchLimit()).UnixNano()
	nodes := l.Placement.SortedNodes()
	for _, n := range nodes {
		s.Commands = append(s.Commands, NodeCommand{n, m.nextID()})
	}
	m.turnTo(now, s, Launching)
	m.note("action", 1, "launch %d: %d ranks on %s",
		l.Generation, len(l.Placement), falcon.NodesText(nodes))
	m.out.Launches = true
}

// watchLaunch ends a launch that can't come up any more, or whose job has run to
// its end before it was described.
func (m *Machine) watchLaunch(now time.Time, w World, waited time.Duration) {
	l := *m.state.Launch
	lost := w.Lost(l)
	switch {
	case lost != "":
		m.launchFails(now, w, lost)
	case len(m.state.Ended) == len(l.Placement):
		m.turnTo(now, m.state, Over)
		m.note("action", 1, "launch %d has run to its end: all %d ranks ended normally",
			l.Generation, len(l.Placement))
		m.out.RanToEnd = true
		m.launchOver()
	case waited > m.cfg.launchLimit():
		m.launchFails(now, w, w.Missing(l))
	}
}

// launchFails has what the launch has started end, before another one can be
// tried on the same nodes.
func (m *Machine) launchFails(now time.Time, w World, why string) {
	s := m.state
	s.Failed = why
	m.note("action", 3, "launch %d has failed: %s", s.Launch.Generation, why)
	m.stopOlder(w, &s, s.Launch.Generation+1, s.Launch.Placement.SortedNodes())
	m.turnTo(now, s, Clearing)
}

// cleared reports whether every node has ended what ran there before.
func (m *Machine) cleared(w World) bool {
	return m.state.Stop == nil || !slices.ContainsFunc(m.state.Stop.Commands, func(c NodeCommand) bool {
		return !w.Done(c) && !w.Fenced(c.Node)
	})
}

func (m *Machine) launchOver() {
	s := m.state
	out := &Launched{Failed: s.Failed, Recovery: s.Next != nil}
	if out.Recovery {
		out.Generation = s.Next.Generation
		out.Placement = s.Next.Placement
	} else {
		out.Generation = s.Launch.Generation
	}
	m.out.Launched = out
}

// endWithout ends a restart that can't come to a launch.
func (m *Machine) endWithout(now time.Time, why string) {
	s := m.state
	s.Failed = why
	m.turnTo(now, s, Over)
	m.note("action", 3, "the restart ends here: %s", why)
	if s.Next != nil {
		m.launchOver()
		return
	}
	m.out.Left = &NoLaunch{Order: s.Order, Reason: why}
}

func (m *Machine) isStop(c NodeCommand) bool {
	return m.state.Stop != nil && slices.Contains(m.state.Stop.Commands, c)
}

func (m *Machine) refused(now time.Time, w World, in Refused) {
	switch {
	case m.isStop(in.NodeCommand):
		m.note("action", 2, "node %s has not ended what runs there of before: %s", in.Node, in.Reason)
	case slices.Contains(m.state.Commands, in.NodeCommand) &&
		m.state.Phase == Launching &&
		len(m.state.Ended) == 0:
		// else it came up: ranks have come to the job's end
		m.launchFails(now, w, fmt.Sprintf("node %s: %s", in.Node, in.Reason))
	}
}

// described ends a restart once its launch is the job.
func (m *Machine) described(now time.Time, in Described) {
	s := m.state
	if s.Phase != Launching || in.Generation != s.Launch.Generation {
		return
	}
	m.turnTo(now, s, Over)
	m.note("action", 1, "launch %d runs: %d ranks in job epoch %d", s.Launch.Generation, in.Ranks, in.Epoch)
	m.launchOver()
}

// superseded ends a restart whose job was started from outside.
func (m *Machine) superseded(now time.Time) {
	s := m.state
	if !s.Active() {
		return
	}
	launched := s.Phase == Launching || s.Phase == Clearing
	s.Failed = "somebody else started the job"
	m.note("action", 2, "the restart ends here: %s", s.Failed)
	m.turnTo(now, s, Over)
	if launched {
		m.launchOver()
	}
}
