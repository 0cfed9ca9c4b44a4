package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/outbox"
	"github.com/failslow/falcon/backend/validate"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/restart"
)

// Attach takes a new stream. With Frame and Detach it makes the engine a
// fleet.Sink: they block while the engine is busy, which is what agents are to
// feel, and end with the session.
func (e *Engine) Attach(s *fleet.Session) error {
	return e.arrive(s, arrival{session: s, what: arriveAttach})
}

// Frame hands one frame on.
func (e *Engine) Frame(s *fleet.Session, f *falconv1.AgentFrame) error {
	return e.arrive(s, arrival{session: s, what: arriveFrame, frame: f})
}

// Detach reports the end of a stream. It must reach the loop although the
// session's own context has ended.
func (e *Engine) Detach(s *fleet.Session) {
	select {
	case e.arrivals <- arrival{session: s, what: arriveDetach, at: e.cfg.Now()}:
	case <-e.done:
	}
}

func (e *Engine) arrive(s *fleet.Session, a arrival) error {
	a.at = e.cfg.Now()
	select {
	case e.arrivals <- a:
		return nil
	case <-s.Context().Done():
		return s.Context().Err()
	case <-e.done:
		return ErrStopped
	}
}

func (e *Engine) handleArrival(a arrival, now time.Time) {
	e.views.dirty = true
	if e.learner.learning() || e.learner.learnsAgain(now, a) {
		e.learner.listen(a, now)
		return
	}
	e.links.noteWait(a, now)
	e.oplog.budgets.sender = falcon.Node(a.session.Hello.GetNode())
	defer func() { e.oplog.budgets.sender = "" }()
	switch a.what {
	case arriveAttach:
		e.onAttach(a.session, now)
	case arriveDetach:
		if n := e.nodes.Detach(a.session); n != nil {
			e.links.agentGone(n, a.session, now)
			e.validations.machine.Step(now, validate.Lost{Node: n.Name})
		}
	case arriveFrame:
		n, fresh := e.nodes.Take(a.session, a.frame.GetSeq(), now)
		if n != nil && a.frame.GetBeat() == nil {
			e.rec.Step(now, recovery.MessageReceived{Node: n.Name})
		}
		if fresh && !e.recoveries.refuses(n, a.frame) {
			e.onFrame(n, a.frame, now)
		}
	}
}

// onAttach welcomes an agent and sends it again what it has not answered.
func (e *Engine) onAttach(s *fleet.Session, now time.Time) {
	was := e.nodes.Node(falcon.Node(s.Hello.GetNode()))
	renewed := was != nil && was.Connected()
	n := e.learner.enterNode(s, now)
	if n == nil {
		return
	}
	e.learner.judgeRivals(n.Name)
	if renewed { // what was sent on the older stream may not have arrived
		e.validations.machine.Step(now, validate.Lost{Node: n.Name})
	}
	e.rec.Step(now, recovery.Node{Node: n.Name, Alive: true})
	e.resendOpen(n, now)
}

// resendOpen sends what is still open to one node, under the same ids. What a
// recovery wants comes before the release of ranks that a test holds.
func (e *Engine) resendOpen(n *fleet.Node, now time.Time) {
	e.cluster.send(e.outbox.Again(now, n.Name, func(it *outbox.Item) bool {
		return e.delivery.wantedBy(now, n.Name, it)
	}))
	e.delivery.sendWaiting(now)
}

func (e *Engine) onFrame(n *fleet.Node, f *falconv1.AgentFrame, now time.Time) {
	switch body := f.GetBody().(type) {
	case *falconv1.AgentFrame_Beat:
		e.recoveries.onBeat(n, body.Beat, now)
	case *falconv1.AgentFrame_Samples:
		e.onSamples(n, body.Samples, e.links.made(n, f, e.cluster.attached[n.Name]), now)
	case *falconv1.AgentFrame_Profile:
		e.measured.profile(n, body.Profile, now)
	case *falconv1.AgentFrame_Telemetry:
		e.measured.telemetry(n, body.Telemetry, now)
	case *falconv1.AgentFrame_Result:
		e.onResult(n, body.Result, now)
	case *falconv1.AgentFrame_Rank:
		e.onRankState(n, body.Rank, now)
	case *falconv1.AgentFrame_Device:
		e.recoveries.onDeviceEvent(n, body.Device, now)
	case *falconv1.AgentFrame_Calls:
		e.hangs.onCalls(n, body.Calls, now)
	case *falconv1.AgentFrame_Kernel:
		e.kernel.take(n, body.Kernel, now)
	case *falconv1.AgentFrame_Peeked:
		e.peeks.onPeeked(n, body.Peeked)
	case *falconv1.AgentFrame_Goodbye:
		e.links.leaves(n.Name)
	}
}

// onSamples feeds the detector and the job's pace. Those of ranks that live on
// another node are refused: a certificate is for its node alone. They were made by then: zero
// where that is not known.
func (e *Engine) onSamples(n *fleet.Node, in *falconv1.Samples, made, now time.Time) {
	if e.job.dirty {
		e.describe(now) // a new process's samples must not count for the old one
	}
	out := e.intake.attribute(n, in.GetSamples(), now)
	if len(out) == 0 {
		return
	}
	if made.IsZero() {
		e.intake.lastData = now
	} else if made.After(e.intake.lastData) {
		e.intake.lastData = made
	}
	newest := slices.MaxFunc(out, func(a, b falcon.Sample) int {
		return cmp.Compare(a.Iteration, b.Iteration)
	})
	e.intake.pulse.note(newest.Iteration+1, made) // who has ended one has begun the next
	v := e.cluster.recovering()
	if v == nil {
		v = e.cluster.unadopted()
	}
	switch r := e.state.restart; {
	case r.Phase == restart.Launching: // of the job epoch that is about to begin, but for the old one's last
		e.intake.keepEarly(slices.DeleteFunc(out, func(s falcon.Sample) bool {
			return s.Iteration < r.Resume
		}))
	case v != nil:
		e.intake.takeLater(*v, out)
	case !e.describer.described:
		e.intake.keepEarly(out)
	default:
		e.intake.feedDetector(out, now)
	}
}

// unheard are the nodes of live ranks that are not among those heard and have
// sent no sample for some time: not those of ranks whose samples come in batches.
func (j *job) unheard(heard map[falcon.Rank]struct{}, now time.Time) []falcon.Node {
	var out []falcon.Node
	for r, p := range j.ranks {
		_, is := heard[r]
		if is ||
			!p.state.GetAlive() ||
			now.Sub(p.lastSeen) < unheardFor ||
			slices.Contains(out, p.node) {
			continue
		}
		out = append(out, p.node)
	}
	slices.Sort(out)
	return out
}

// onResult takes the answer to a command.
func (e *Engine) onResult(n *fleet.Node, in *falconv1.CommandResult, now time.Time) {
	again := e.learner.newer(now, n.Name, in.GetNewer())
	if in.GetEpoch() != e.state.Epoch || in.GetNewer().GetEpoch() > e.state.Epoch {
		return // of a node that follows another engine: its refusal is no fault of its own
	}
	if e.validations.machine.Awaits(in.GetId()) {
		e.validations.machine.Step(now, validate.Answer{
			Node:   n.Name,
			Result: e.cluster.cleanResult(n, in),
		})
		return
	}
	if e.orders.lateResult(n.Name, e.cluster.ownAcks(n, in), e.state.job.Epoch) {
		e.delivery.judge(now)
		return
	}
	it := e.outbox.Find(n.Name, in.GetId())
	if it == nil {
		return
	}
	switch about := it.About.(type) {
	case restart.NodeCommand:
		e.restart.onAnswer(now, it, n.Name, in)
	case *nodeCommand:
		if again {
			it.Close(n.Name)
			return // the recovery has begun again above it
		}
		e.recoveries.onAnswer(now, it, n.Name, in)
	case *order:
		about.vote.Answer(n.Name, e.cluster.ownAcks(n, in))
		e.delivery.judge(now)
	case answerer:
		it.Close(n.Name)
		about.onAnswer(e, now, n.Name, in)
	case window:
		failed := in.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_REFUSED ||
			in.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_EXPIRED
		if failed && !it.Answered(n.Name) {
			it.Close(n.Name)
			e.det.Step(now, detect.Profiled{
				Window:  uint64(about),
				Refused: clean(string(n.Name) + ": " + in.GetDetail()),
			})
		}
	}
}

func (e *Engine) onRankState(n *fleet.Node, in *falconv1.RankState, now time.Time) {
	rank := e.job.seatOf(n.Name, in).rank
	old := e.job.ranks[rank]
	was := old != nil && old.state.GetAlive()
	if e.cluster.misplaced(n.Name, rank, in) {
		e.oplog.logf("rank", 2, string(n.Name),
			"node %s claims rank %d, which the recovery has elsewhere: ignored",
			n.Name, rank)
		e.cluster.left.note(now, n.Name, in)
		e.recoveries.takeForeignLaunch(now, n.Name, rank, in)
		return
	}
	if e.cluster.isStray(n.Name, rank, in) && !e.arbiter.present(now).changing() {
		e.recoveries.endStray(now, n.Name, rank, in)
		e.cluster.left.note(now, n.Name, in)
		return
	}
	if was &&
		old.node != n.Name &&
		e.cluster.keepsRank(old, n.Name, in) &&
		!e.cluster.placed(n.Name, rank) {
		e.oplog.logf("rank", 2, string(n.Name), "node %s claims rank %d, which lives on node %s: ignored",
			n.Name, rank, old.node)
		e.cluster.left.note(now, n.Name, in)
		return
	}
	if e.cluster.nodeOf(rank) == n.Name {
		e.learner.onGeneration(now, n.Name, generationOf(in))
	}
	if !e.job.setState(n.Name, in) {
		return
	}
	e.cluster.left.forget(n.Name, processName(n.Name, in))
	p := e.job.ranks[rank]
	if !in.GetAlive() && p.endedAt.IsZero() {
		p.endedAt = now
	}
	e.delivery.takeVote(p, now)
	e.restart.noteEnded(now, p)
	e.describer.announceProcess(now, p)
	if was && in.GetAlive() && old != p {
		// Its end will be reported late or never; the new process is not held.
		e.validations.machine.Step(now, validate.Stop{
			Why: fmt.Sprintf("rank %d on node %s was started again", rank, n.Name),
		})
	}
	if was && !in.GetAlive() {
		e.validations.machine.Step(now, validate.Stop{
			Why: fmt.Sprintf("rank %d on node %s has ended", rank, n.Name),
		})
		severity := int32(3)
		switch {
		case falconv1.ExitedWell(in.GetExit()):
			severity = 0
		case in.GetExit() == "": // how will follow
			severity = 1
		}
		e.oplog.logf("rank", severity, falcon.RankSubject(rank), "rank %d on node %s has ended%s",
			rank, n.Name, exitText(in.GetExit()))
	}
}

// keepsRank reports whether the process that has a rank keeps it from one of another node that claims
// it. The job's own of before the engine's start takes it from one that came first.
func (c *clusterView) keepsRank(old *process, n falcon.Node, in *falconv1.RankState) bool {
	if c.left.has(n, in) {
		return true
	}
	if last := generationOf(in); last > 0 && last < old.state.GetRejoinedGeneration() {
		return true // it was left behind; one that was never ordered into any may be of a new job
	}
	g := in.GetGeneration()
	had := old.state.GetGeneration()
	if in.GetAlive() && g > had && g <= c.newestGeneration() {
		c.left.note(c.cfg.Now(), old.node, old.state)
		return false // it was launched for the rank later
	}
	_, own := c.job.known[processName(n, in)]
	_, kept := c.job.known[old.name]
	if own && !kept && in.GetAlive() && g >= had {
		c.left.note(c.cfg.Now(), old.node, old.state)
		return false
	}
	return c.connected(old.node)
}
