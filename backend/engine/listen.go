package engine

import (
	"fmt"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/recovery"
	"github.com/failslow/falcon/recovery/epoch"
)

// listen takes what arrives while the engine learns: nobody is acted on.
func (l *learner) listen(a arrival, now time.Time) {
	n := falcon.Node(a.session.Hello.GetNode())
	switch a.what {
	case arriveAttach:
		if l.enterNode(a.session, now) == nil {
			return
		}
	case arriveDetach:
		if l.nodes.Detach(a.session) == nil {
			return
		}
	case arriveFrame:
		if _, fresh := l.nodes.Take(a.session, a.frame.GetSeq(), now); !fresh {
			return
		}
	}
	l.hold(a, n)
	l.learnsOn(now)
}

// enterNode enters a new stream and welcomes its agent; nil where it was turned away.
func (l *learner) enterNode(s *fleet.Session, now time.Time) *fleet.Node {
	e := l.engine
	n, acked, err := e.nodes.Attach(s, now)
	e.oplog.tellTwins(e.nodes.Node(falcon.Node(s.Hello.GetNode())), now)
	if err != nil {
		s.End(err)
		return nil
	}
	l.attach(now, s)
	e.cluster.attached[n.Name] = now
	e.links.attached(n.Name)
	e.job.emulated = e.job.emulated || s.Hello.GetEmulated()
	e.oplog.nodeSays(now, agentCame(s.Hello, e.cfg.JobName), n.Name)
	s.Send(l.welcome(acked))
	return n
}

// learnsOn reports whether the engine still learns, and has it begin to act when that is over.
func (l *learner) learnsOn(now time.Time) bool {
	if !l.learning() {
		return false
	}
	if !l.machine.Over(now) {
		l.notice(now)
		return true
	}
	l.beginActing(now)
	return false
}

// beginActing puts the journal right where it is older than the nodes, gives the machines what it
// has, and after it what the nodes have said.
func (l *learner) beginActing(now time.Time) {
	e, held, stale := l.engine, l.held, l.machine.Stale()
	l.held = nil
	l.numbers(now, stale)
	if len(stale) > 0 {
		l.tellStale(stale)
		e.recoveries.liftOutdated(now, held)
	}
	if !l.acted {
		e.restart.adopt(e.state.restart)
	}
	l.fenceLeftBehind(now, held, len(stale) > 0)
	world := 0
	if len(stale) > 0 || len(e.state.job.Placement) == 0 {
		world = l.reseat(now, held, len(stale) > 0)
	}
	if world > 0 {
		l.rebuild(now, world)
	}
	e.describer.withoutProcesses(func() { l.restore(now) })
	e.describer.announceProcesses(now)
	e.intake.takeEarly(now)
	for _, n := range e.nodes.Nodes() {
		if n.Connected() && len(stale) > 0 {
			n.Session.Send(l.welcome(0))
		}
	}
	for _, a := range held {
		l.replay(a, now)
	}
	if len(e.state.job.Placement) > 0 {
		e.describer.announceToRecovery(now) // with what the processes declare: a step may be chosen at once
	}
	for _, n := range e.nodes.Nodes() {
		if n.Connected() {
			e.resendOpen(n, now)
		}
	}
}

// restore gives the machines what the journal kept. An engine that has learnt again knew no job
// before: they are given that alone.
func (l *learner) restore(now time.Time) {
	switch {
	case !l.acted:
		l.engine.restoreMachines(now)
	case len(l.state.job.Placement) > 0:
		l.engine.describer.announce(now, l.state.job)
	}
	l.acted = true
}

// replay takes what had to wait. Streams were entered when they came.
func (l *learner) replay(a arrival, now time.Time) {
	e := l.engine
	n := e.nodes.Node(falcon.Node(a.session.Hello.GetNode()))
	e.links.came = now
	if !a.at.IsZero() {
		e.links.came = a.at // clocks are compared with when it came, and not with when it was used
	}
	switch {
	case n == nil:
	case a.what == arriveAttach:
		e.rec.Step(now, recovery.Node{Node: n.Name, Alive: true})
	case a.what == arriveDetach:
		e.links.agentGone(n, a.session, now)
	case !e.recoveries.refuses(n, a.frame):
		e.oplog.budgets.sender = n.Name
		e.onFrame(n, a.frame, now)
		e.oplog.budgets.sender = ""
	}
}

// reseat takes the processes as their nodes describe them, the dead ones too: the journal has the job
// as it was, or not at all. It returns the number of ranks where all of them are described, else 0.
func (l *learner) reseat(now time.Time, held []arrival, stale bool) int {
	e := l.engine
	if stale {
		e.job.forgetJournal()
	}
	e.job.outlived = l.machine.Trains()
	for _, a := range held {
		n := falcon.Node(a.session.Hello.GetNode())
		s := a.frame.GetRank()
		if s != nil &&
			!e.state.fences.nodeFenced(n) &&
			!e.state.fences.processFenced(processName(n, s)) {
			e.job.setState(n, s)
		}
	}
	world := e.job.world()
	if world == 0 { // none lives
		world = l.machine.World()
	}
	if world == 0 || !stale && e.job.complete() { // a job that is whole is described as any other
		return 0
	}
	var unknown []falcon.Rank
	for r := range world {
		if e.job.ranks[falcon.Rank(r)] == nil {
			unknown = append(unknown, falcon.Rank(r))
		}
	}
	if len(unknown) == 0 {
		return world
	}
	e.oplog.logf("journal", 3, "",
		"%d of %d ranks, the first of them rank %d, are described by no node and by no record: nothing is recovered before they are; start their agents, or the job again",
		len(unknown), world, unknown[0])
	e.describer.forget(now)
	return 0
}

// fenceLeftBehind refuses the processes that were replaced. Those that live are not ended: who was
// started by hand since can't be distinguished from them. Of the nodes on which a journal that is not stale
// has the rank none is: the newest that they have done may not be known yet.
func (l *learner) fenceLeftBehind(now time.Time, held []arrival, stale bool) {
	v := fenceRecord{Generation: l.machine.Trains()}
	newest := map[string]*falconv1.RankState{} // of each process
	for _, a := range held {
		if s := a.frame.GetRank(); s != nil {
			newest[processName(falcon.Node(a.session.Hello.GetNode()), s)] = s
		}
	}
	for _, a := range held {
		n, s := falcon.Node(a.session.Hello.GetNode()), a.frame.GetRank()
		if s == nil ||
			s != newest[processName(n, s)] ||
			!l.machine.Replaced(claimOf(n, s)) {
			continue
		}
		if !stale && l.cluster.nodeOf(falcon.Rank(s.GetRank())) == n {
			continue
		}
		v.Processes = append(v.Processes, processName(n, s))
		if !s.GetAlive() {
			continue
		}
		l.oplog.logf("rank", 2, string(n),
			"process %d on node %s claims rank %d, and was replaced: the job trains without it; end it by hand",
			s.GetPid(), n, s.GetRank())
	}
	if len(v.Processes) > 0 {
		l.batch.apply(record(now, kindFence, v))
	}
}

// rebuild describes the job in the journal by its processes, every one of which is known.
func (l *learner) rebuild(now time.Time, world int) {
	e := l.engine
	v := epoch.View{
		Job:        e.state.job,
		Configured: e.describer.configuredLayout(),
		Ranks:      e.job.ranksView(world),
	}
	rec := v.Candidate()
	for _, r := range v.Ranks {
		rec.Rejoined = max(rec.Rejoined, r.Rejoined)
	}
	if rec.Epoch != e.state.job.Epoch {
		e.beginEpoch(now, rec)
	}
	e.describer.record(now, rec)
	e.oplog.logf("journal", 1, "", "the job is known again from its nodes: %s", e.job.lifeText(world))
}

// lifeText says who lives, for people.
func (j *job) lifeText(world int) string {
	parked := 0
	for _, p := range j.ranks {
		if p.state.GetAlive() && p.state.GetPark() != nil {
			parked++
		}
	}
	return fmt.Sprintf("%d of %d ranks live, %d of them are suspended, %d have ended",
		j.alive, world, parked, j.dead)
}

// forgetJournal forgets what an older journal says of the processes.
func (j *job) forgetJournal() {
	j.known = nil
	j.placed = 0
	j.floor = 0
}

// forget drops a description that is known to be wrong.
func (d *jobDescriber) forget(now time.Time) {
	if d.state.job.Epoch == 0 {
		return
	}
	d.described = false
	d.batch.apply(record(now, kindJob, jobDelta(d.state.job, jobRecord{Epoch: d.state.job.Epoch + 1})))
	d.job.forgetJournal()
}
