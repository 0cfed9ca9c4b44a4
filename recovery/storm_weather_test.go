package recovery

import (
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
)

// weather is trouble of connections, of the engine itself and of storage: nothing
// of it is a fault of a node.
type weather struct {
	pause    time.Time // all ranks are in their storage until then
	lag      time.Time // the engine takes nothing in until then
	advanced time.Time // the job's newest iteration began
	measured bool      // hooks know what their ranks wait for
	ended    []falcon.Rank
}

func (s *storm) trouble(n *simNode) {
	switch s.rng.IntN(8) {
	case 0:
		s.saw["goodbye"] = true
		s.agentRestarts(n, Goodbye)
		n.attach = s.now.Add(time.Duration(s.rng.IntN(9000)) * time.Millisecond)
	case 1:
		s.blackout()
	case 2:
		s.saw["all agents restart"] = true
		how := []How{Goodbye, Reset, Closed}[s.rng.IntN(3)]
		for _, n := range s.nodes {
			s.agentRestarts(n, how)
		}
	case 3, 4:
		s.saw["pause"] = true
		s.weather.pause = s.now.Add(time.Duration(2000+s.rng.IntN(8000)) * time.Millisecond)
		s.logf("all ranks write to storage until %.1f", s.weather.pause.Sub(s.start).Seconds())
	case 5:
		s.saw["late engine"] = true
		s.weather.lag = s.now.Add(time.Duration(s.rng.IntN(9000)) * time.Millisecond)
		s.logf("the engine is late until %.1f", s.weather.lag.Sub(s.start).Seconds())
	case 6, 7:
		s.pauseNode(n)
	}
}

// pauseNode has a node's agent and processes stand still for a while, as in a live migration.
func (s *storm) pauseNode(n *simNode) {
	if !n.up || n.paused(s.now) {
		return
	}
	s.saw["node pause"] = true
	n.pause = s.now.Add(time.Duration(1000+s.rng.IntN(20000)) * time.Millisecond)
	s.logf("node %s stands still until %.1f", n.name, n.pause.Sub(s.start).Seconds())
	for _, p := range s.procs {
		if p.node == n.name && p.alive && !p.frozen {
			p.frozen, p.paused = true, true
		}
	}
}

func (n *simNode) paused(now time.Time) bool { return now.Before(n.pause) }

// goOn has a node that stood still go on; some agents begin a new stream then.
func (s *storm) goOn(n *simNode) {
	if n.pause.IsZero() || n.paused(s.now) {
		return
	}
	n.pause, n.wentOn = time.Time{}, s.now
	s.logf("node %s goes on", n.name)
	for _, p := range s.procs {
		if p.node == n.name && p.paused {
			p.frozen, p.paused = false, false
		}
	}
	if s.chance(0.5) {
		s.agentRestarts(n, Reset)
	}
}

// blackout takes the engine's network away; it comes back node by node.
func (s *storm) blackout() {
	s.saw["blackout"] = true
	for _, n := range s.nodes {
		if s.chance(0.1) {
			continue
		}
		n.cut, n.cutEnds = true, s.now.Add(time.Duration(4000+s.rng.IntN(12000))*time.Millisecond)
		s.logf("link of %s is lost until %.1f", n.name, n.cutEnds.Sub(s.start).Seconds())
	}
}

func (s *storm) clears(n *simNode) {
	if !n.cutEnds.IsZero() && !s.now.Before(n.cutEnds) {
		n.cut = false
		n.cutEnds = time.Time{}
	}
}

// lags reports whether the engine is late; once it goes on, it says so.
func (s *storm) lags() bool {
	if s.now.Before(s.weather.lag) {
		return true
	}
	if !s.weather.lag.IsZero() {
		s.weather.lag = time.Time{}
		s.m.Step(s.now, Late{})
	}
	return false
}

// idle has every process that trains wait, but for those in the optimizer, and
// while all compute.
func (s *storm) idle(together bool) {
	for _, p := range s.procs {
		switch {
		case together || !p.alive || !p.training || p.frozen || p.tag == -1:
			p.idle = time.Time{}
		case p.idle.IsZero():
			p.idle = s.now
		}
	}
}

// harmless looks at a recovery that begins by silence: the job must have stood,
// and not for a reason that all of it share.
func (s *storm) harmless(c falcon.Recovery) {
	if len(c.Faults) != 1 || c.Attempts > 1 || s.seen[c.ID] {
		return
	}
	s.seen[c.ID] = true
	f := c.Faults[0]
	if f.Kind != falcon.FaultNode && f.Kind != falcon.FaultFrozen ||
		strings.Contains(f.Evidence[0], "asks that") {
		return
	}
	if s.pol.Recovery.FenceAlone {
		return // that asks for less than the word of those who are heard
	}
	n := s.simNode(f.Node)
	if !n.wentOn.IsZero() && s.now.Sub(n.wentOn) < 4*time.Second {
		return // it has just gone on, and that is not known yet
	}
	stood := s.now.Sub(s.weather.advanced)
	if stood < 4*time.Second && s.weather.measured {
		s.fail("node %s is given up while iterations begin, the newest %s ago: %v", f.Node, stood, f.Evidence)
	}
	device := strings.Contains(strings.Join(f.Evidence, " "), "reports XID")
	if s.sound() && (s.weather.measured || !device) {
		s.fail("node %s is given up and the whole job is sound: %v", f.Node, f.Evidence)
	}
}

// sound reports whether every rank's process could train on.
func (s *storm) sound() bool {
	for r, d := range s.job.Placement {
		ok := false
		for _, p := range s.procs {
			ok = ok ||
				p.rank == falcon.Rank(r) &&
					p.node == d.Node() &&
					p.alive &&
					p.training &&
					!p.frozen &&
					!p.stuck &&
					s.owner(p)
		}
		if !ok || !s.simNode(d.Node()).up {
			return false
		}
	}
	return true
}

// finish lets a job that trains come to its end, rank by rank: that is no fault,
// however the engine hears of it.
func (s *storm) finish() {
	_, open := s.m.Current()
	if open ||
		s.m.stop.isStopped() ||
		s.trainers() < len(s.job.Placement) ||
		!s.sound() ||
		!s.chance(0.5) {
		return
	}
	if slices.ContainsFunc(s.nodes, func(n *simNode) bool {
		return n.cut || n.up && !n.attached
	}) {
		return
	}
	s.saw["finished"] = true
	recoveries := len(s.journal)
	first := true
	for step := range 120 {
		for _, p := range s.procs {
			if !p.alive || !s.owner(p) || !first && step < 40 && s.chance(0.8) {
				continue
			}
			unseen := !first && s.chance(0.5)
			s.logf("rank %d pid %d ends with success, unseen: %v", p.rank, p.pid, unseen)
			p.alive = false
			p.training = false
			p.normal = true
			p.over = true
			p.unseen = unseen
			if first {
				first = false
				break
			}
		}
		if s.chance(0.03) && !s.now.Before(s.down) {
			s.saw["engine restart as it finishes"] = true
			s.engineStops()
		}
		if s.step(); s.bad != "" {
			return
		}
	}
	for _, c := range s.journal[recoveries:] {
		if c.Attempts > 0 {
			s.fail("a finished job is recovered: %+v", c)
		}
	}
	if !s.m.ends.Finished() && !s.m.stop.isStopped() {
		s.fail("the job has finished, and the machine does not know: %v are over", s.m.ends.Count())
	}
}

func (s *storm) agentRestarts(n *simNode, how How) {
	if !n.up {
		return
	}
	s.logf("agent of %s restarts (%d)", n.name, how)
	n.tasks = nil
	n.out = nil
	n.in = nil
	if !n.cut {
		n.in = []message{{due: s.now, input: Node{Node: n.name, How: how}}}
	}
	s.detach(n)
}

func (s *storm) byHand(p *proc) {
	d := Demand{
		Rank:   p.rank,
		Node:   p.node,
		By:     "kim",
		Reason: "test",
	}
	if s.chance(0.5) {
		d.Rank = -1
	}
	if !s.now.Before(s.down) && s.m.CheckDemand(d) == nil && s.chance(0.5) {
		s.logf("demand %+v", d)
		s.m.Step(s.now, d)
		s.digest()
	}
}
