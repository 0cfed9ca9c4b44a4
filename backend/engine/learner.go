package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/version"
	"github.com/failslow/falcon/backend/fleet"
	"github.com/failslow/falcon/backend/learn"
	"github.com/failslow/falcon/recovery"
)

// An engine that has started hears its nodes before it acts on them: what they say waits until
// backend/learn knows enough. Then the journal is put right where it was older than they are,
// the machines get what the journal has, and after it what the nodes have said.

// ErrSuperseded ends an engine whose nodes follow another one.
var ErrSuperseded = errors.New("engine: superseded")

// Bounds of what waits while the engine learns.
const (
	heldFrames  = 1 << 16         // then samples and telemetry are left out: a detector does without
	learnNotice = 3 * time.Second // after which it is said what the engine waits for
)

// learner is what an engine does before it acts.
type learner struct {
	*shared

	engine    *Engine
	machine   *learn.Machine // nil = nothing is learnt, in tests of other parts
	self      learn.Engine
	found     uint64 // the newest generation of the journal as it was found
	held      []arrival
	began     time.Time
	announced bool // that the engine waits
	acted     bool // the machines have what the journal kept
	older     bool // a node does not say what it follows
	ends      error
}

// begin makes this start known to the journal, and begins to learn.
func (l *learner) begin(now time.Time, id string) {
	first := l.state.Epoch == 0
	head := l.cfg.Journal.Head().Seq
	l.self = learn.Engine{
		ID:    id,
		Host:  l.cfg.Host,
		Start: l.state.newestStart().Start + 1,
		First: head + 1,
	}
	own := l.own(head)
	l.machine = learn.New(own)
	l.found = own.Generation
	l.batch.apply(record(now, kindEpoch, epochRecord{
		Epoch:  own.Epoch,
		Engine: &l.self,
	}))
	if l.cfg.TrustJournal {
		l.machine.Agree()
	}
	if first {
		l.log.Debug("the journal is new")
	}
}

// own is what the journal says, with its newest record.
func (l *learner) own(head uint64) learn.Own {
	return learn.Own{
		Numbers: learn.Numbers{
			Epoch:      max(l.state.Epoch, 1),
			Command:    max(l.state.Reserved, 1) - 1,
			Generation: l.cluster.newestGeneration(),
			Order:      max(l.state.NextOrder, 1) - 1,
		},
		Record:  head,
		Engine:  l.self,
		Before:  slices.Clone(l.state.Starts),
		Nodes:   l.expected(),
		Empty:   len(l.state.job.Placement) == 0,
		Rejoins: l.rejoins(),
	}
}

// learnsAgain has an engine that knows no job hear its nodes again, where one comes that follows
// another engine: the job may be that one's, and this engine's nodes were out of its reach until now.
// It reports whether it does.
func (l *learner) learnsAgain(now time.Time, a arrival) bool {
	if a.what != arriveAttach ||
		l.machine == nil ||
		l.ends != nil ||
		l.cfg.TrustJournal ||
		len(l.state.job.Placement) > 0 {
		return false
	}
	if !l.machine.Leads(reportOf(a.session.Hello.GetStanding())) {
		return false
	}
	l.oplog.logf("journal", 2, "",
		"node %s follows another engine, and this one knows no job: it hears its nodes again",
		a.session.Hello.GetNode())
	l.machine = learn.New(l.own(l.cfg.Journal.Head().Seq))
	l.began, l.announced = now, false
	for _, n := range l.nodes.Nodes() {
		if n.Connected() {
			l.machine.Attach(now, n.Name, learn.Report{})
			l.machine.Told(n.Name)
		}
	}
	for _, r := range sortedKeys(l.engine.job.ranks) {
		p := l.engine.job.ranks[r]
		l.machine.Rank(claimOf(p.node, p.state))
	}
	return true
}

// rejoins is the newest generation that ranks may have rejoined: of a recovery that has not come so
// far none has.
func (l *learner) rejoins() uint64 {
	newest := l.cluster.newestGeneration()
	v := l.state.current()
	if v == nil || v.Generation < newest {
		return newest
	}
	switch v.State {
	case falcon.RecoveryProposed, falcon.RecoverySuspend, falcon.RecoveryReplace,
		falcon.RecoveryTable, falcon.RecoveryCollect:
		return newest - min(newest, 1)
	}
	return newest
}

// refusal is why nothing can be decided about the job yet, nil once the engine acts.
func (l *learner) refusal() error {
	switch {
	case !l.learning():
		return nil
	case len(l.nodes.Nodes()) == 0:
		return fmt.Errorf(
			"%w: the engine has started and no node was heard yet: nothing can be decided about a job before one is; see that falcon-agent runs and reaches this engine",
			ErrRefused,
		)
	}
	return fmt.Errorf(
		"%w: the engine has started and hears its nodes first: it waits up to %s for %s; repeat it then",
		ErrRefused, l.machine.Limit(), l.waitsFor(),
	)
}

// expected are the nodes that hold ranks, as far as the journal knows, but for those given up.
func (l *learner) expected() []falcon.Node {
	p := l.state.job.Placement
	if v := l.cluster.recovering(); v != nil {
		p = v.Placement
	}
	given := map[falcon.Node]bool{}
	if v := l.state.current(); v != nil {
		for _, n := range v.Fenced {
			given[n] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(p.SortedNodes()), func(n falcon.Node) bool {
		return given[n] || l.state.fences.nodeFenced(n)
	})
}

func (l *learner) learning() bool {
	return l.machine != nil && l.machine.Learning()
}

// reportOf is what a node says of the engines before.
func reportOf(s *falconv1.Standing) learn.Report {
	return learn.Report{
		Numbers: learn.Numbers{
			Epoch:      s.GetEpoch(),
			Command:    s.GetCommand(),
			Generation: s.GetGeneration(),
			Order:      s.GetOrder(),
		},
		Seen:   seenOf(s.GetEngine(), s.GetRecord()),
		Before: seenOf(s.GetBefore().GetEngine(), s.GetBefore().GetRecord()),
	}
}

func seenOf(e *falconv1.EngineName, record uint64) learn.Seen {
	name := learn.Engine{
		ID:    clean(e.GetId()),
		Host:  clean(e.GetHost()),
		Start: e.GetStart(),
	}
	return learn.Seen{Engine: name, Record: record}
}

// attach takes what a node says first.
func (l *learner) attach(now time.Time, s *fleet.Session) {
	if l.machine == nil {
		return
	}
	n := falcon.Node(s.Hello.GetNode())
	l.machine.Attach(now, n, reportOf(s.Hello.GetStanding()))
	if s.Hello.GetProtocol() < falconv1.StandingRevision {
		l.older = true
		l.machine.Told(n)
	}
}

// claimOf is a process as it claims its rank.
func claimOf(n falcon.Node, s *falconv1.RankState) learn.Rank {
	return learn.Rank{
		Node:       n,
		Process:    processName(n, s),
		Rank:       falcon.Rank(s.GetRank()),
		Device:     deviceOn(n, s.GetDevice()),
		Alive:      s.GetAlive(),
		Joins:      s.GetPark().GetJoining(),
		World:      int(min(max(s.GetWorld(), 0), RanksMax)),
		Generation: generationOf(s),
		Launch:     s.GetGeneration(),
		Rejoined:   s.GetRejoinedGeneration(),
		Order:      max(s.GetPlacementOrder(), s.GetCommitted().GetOrder()),
	}
}

// hold keeps what arrives while the engine learns, and learns from it.
func (l *learner) hold(a arrival, n falcon.Node) {
	switch {
	case a.what == arriveDetach:
		l.machine.Gone(n)
	case a.frame.GetBeat() != nil:
		l.machine.Report(reportOf(a.frame.GetBeat().GetStanding()))
		l.machine.Told(n)
		for _, r := range a.frame.GetBeat().GetRanks() {
			l.machine.Beat(n, falcon.Rank(r.GetRank()), r.GetIteration())
		}
	case a.frame.GetRank() != nil:
		s := a.frame.GetRank()
		c := claimOf(n, s)
		c.Untold = a.session.Hello.GetProtocol() < falconv1.StandingRevision
		l.machine.Rank(c)
	}
	if len(l.held) >= heldFrames &&
		(a.frame.GetSamples() != nil || a.frame.GetTelemetry() != nil) {
		return
	}
	l.held = append(l.held, a)
}

// notice says once what the engine waits for.
func (l *learner) notice(now time.Time) {
	if l.began.IsZero() {
		l.began = now
	}
	if l.announced || now.Sub(l.began) < learnNotice || len(l.nodes.Nodes()) == 0 {
		return
	}
	l.announced = true
	l.oplog.logf("journal", 1, "",
		"the engine has started and acts on nobody before it has heard its nodes: it waits up to %s for %s",
		l.machine.Limit(), l.waitsFor())
}

// waitsFor names what was not heard, for people.
func (l *learner) waitsFor() string {
	if list := l.machine.Missing(); len(list) > 0 {
		return falcon.NodesText(list)
	}
	if list := l.machine.MissingRanks(); len(list) > 0 {
		return fmt.Sprintf("rank %d and whoever else belongs to the job (%d of %d ranks are not described)",
			list[0], len(list), l.machine.World())
	}
	return "the job's ranks"
}

// numbers puts the numbers in force that the engine goes on with, above all that were used.
func (l *learner) numbers(now time.Time, stale []learn.Sign) {
	at, next := l.machine.Learnt(), l.state.Epoch
	if len(stale) > 0 {
		next = max(next, at.Epoch) + 1
	}
	if l.older && l.state.job.Epoch == 0 { // agents that do not tell take epochs by the wall clock alone
		next = max(next, uint64(max(now.UnixNano(), 0)))
	}
	more := at.Generation > l.cluster.newestGeneration() || at.Order >= l.state.NextOrder
	if more && len(stale) == 0 {
		raised := &learntRecord{Generation: at.Generation, Order: at.Order}
		l.batch.apply(record(now, kindEpoch, epochRecord{
			Epoch:  l.state.Epoch,
			Learnt: raised,
		}))
	}
	if next == l.state.Epoch {
		return
	}
	v := epochRecord{Epoch: next}
	if len(stale) > 0 {
		v.Learnt = &learntRecord{
			Generation: at.Generation,
			Order:      at.Order,
			Void:       true,
		}
		if at.Epoch == l.state.Epoch {
			v.Learnt.Command = at.Command
		}
	}
	l.raise(now, v)
}

// raise puts a higher epoch in force, with ids of its own.
func (l *learner) raise(now time.Time, v epochRecord) {
	l.batch.apply(record(now, kindEpoch, v))
	l.batch.skipTo(now, l.state.Reserved)
	l.machine.Raised(learn.Numbers{
		Epoch:      v.Epoch,
		Command:    l.state.Reserved,
		Generation: l.cluster.newestGeneration(),
		Order:      l.state.NextOrder - 1,
	})
}

// welcome is the first frame of a stream, and what raises an epoch on one.
func (l *learner) welcome(acked uint64) *falconv1.EngineFrame {
	w := &falconv1.Welcome{
		Epoch:        l.state.Epoch,
		Acked:        acked,
		BeatPeriodMs: l.cfg.beatPeriod().Milliseconds(),
		Protocol:     falconv1.ProtocolRevision,
		Version:      version.Own(),
		Record:       l.cfg.Journal.Head().Seq,
		Job:          l.cfg.JobName,
	}
	if l.self.ID != "" {
		w.Engine = &falconv1.EngineName{
			Id:    l.self.ID,
			Host:  l.self.Host,
			Start: l.self.Start,
		}
	}
	return &falconv1.EngineFrame{Body: &falconv1.EngineFrame_Welcome{Welcome: w}}
}

// tellStale says what was found, and what no node can give back.
func (l *learner) tellStale(stale []learn.Sign) {
	var parts []string
	for _, s := range stale {
		switch s.Kind {
		case learn.ByEngine:
			parts = append(parts, fmt.Sprintf("they followed engine %s, which it does not know",
				l.machine.Predecessor()))
		case learn.ByCommand, learn.ByRecord, learn.ByEpoch, learn.ByGeneration, learn.ByOrder,
			learn.ByRejoin:
			parts = append(parts, fmt.Sprintf("they have seen %s %d, and it ends at %d",
				s.Kind, s.Seen, s.Has))
		}
	}
	l.oplog.logf("journal", 3, "",
		"the journal is older than the nodes: %s; the engine goes on above that, as epoch %d, with the job as the nodes describe it",
		strings.Join(parts, "; "), l.state.Epoch)
	l.oplog.logf("journal", 2, "",
		"what was decided since is lost with the records: changes of the policy (in force is %s), fences and bars by hand, snoozes, incidents and the audit of that time: look at falcon policy and falcon node, and set them again",
		l.state.policy.Policy.Mode)
	l.log.Error(
		"the journal is older than the nodes",
		"signs",
		strings.Join(parts, "; "),
		"epoch",
		l.state.Epoch,
		"generation",
		l.cluster.newestGeneration(),
	)
}

// newer takes a refusal as older: the engine goes above what the node knows. It reports whether the
// command is to be given again under a higher generation.
func (l *learner) newer(now time.Time, n falcon.Node, s *falconv1.Standing) bool {
	if s == nil || l.machine == nil {
		return false
	}
	r := reportOf(s)
	l.machine.Refused(now, n, r)
	l.judgeRivals(n)
	return l.seen(now, n, r.Generation, learn.NumberMost)
}

// generationsAhead is how many generations a process may be ahead of the journal: another engine has
// ordered them within minutes. What claims more is not believed.
const generationsAhead = 1000

// onGeneration takes the generation of a process.
func (l *learner) onGeneration(now time.Time, n falcon.Node, generation uint64) {
	l.seen(
		now,
		n,
		generation,
		min(l.cluster.newestGeneration()+generationsAhead, learn.NumberMost),
	)
}

// seen goes above a generation that a node has seen, by an order of another engine. It reports whether
// the journal did not know it.
func (l *learner) seen(now time.Time, n falcon.Node, generation, most uint64) bool {
	if l.machine == nil || generation <= l.cluster.newestGeneration() || generation >= most {
		return false
	}
	l.oplog.logf("recovery", 2, string(n),
		"node %s has seen generation %d, which the journal does not know: the engine goes above it",
		n, generation)
	l.goAbove(now, n, generation)
	return true
}

// goAbove has the journal and the recovery machine use no generation up to one that a node has, or
// will have, seen.
func (l *learner) goAbove(now time.Time, n falcon.Node, generation uint64) {
	raised := &learntRecord{Generation: generation}
	l.batch.apply(record(now, kindEpoch, epochRecord{
		Epoch:  l.state.Epoch,
		Learnt: raised,
	}))
	l.rec.Step(now, recovery.Newer{Node: n, Generation: generation})
}

// goAboveRival has nodes follow this engine that follow one which has left them: they obey no engine
// until then.
func (l *learner) goAboveRival(now time.Time) {
	if l.machine == nil || l.ends != nil {
		return
	}
	n, r, found := l.machine.Abandoned(now, l.cluster.connected)
	if !found {
		return
	}
	next := max(l.state.Epoch, r.Epoch) + 1
	l.raise(now, epochRecord{Epoch: next})
	l.machine.GoneAbove(now)
	l.oplog.logf("journal", 2, string(n),
		"node %s follows engine %s, and has been connected to this one alone for %s: this engine goes on as epoch %d, which all nodes follow; see that only one engine serves this job",
		n, r.Engine, learn.RivalMost, next)
	l.batch.sendDurable(func() {
		for _, x := range l.nodes.Nodes() {
			if x.Connected() {
				x.Session.Send(l.welcome(0))
				l.engine.resendOpen(x, now)
			}
		}
	})
}

// judgeRivals ends the engine where most of its nodes follow another, and says where one does.
func (l *learner) judgeRivals(n falcon.Node) {
	if l.machine == nil || l.ends != nil || l.machine.Follows(n) {
		return
	}
	connected := 0
	for _, x := range l.nodes.Nodes() {
		if x.Connected() {
			connected++
		}
	}
	r, beaten := l.machine.Rival(connected, l.cluster.jobNodes())
	if !beaten {
		l.oplog.logf("journal", 3, string(n),
			"node %s follows another engine: it obeys no order of this one; see that only one engine serves this job",
			n)
		return
	}
	l.ends = fmt.Errorf(
		"%w: the nodes follow engine %s, epoch %d; this is engine %s, epoch %d, and it ends without having touched them: stop the engine that is not to run, then start the other again",
		ErrSuperseded, r.Engine, r.Epoch, l.self, l.state.Epoch,
	)
	l.oplog.logf("journal", 3, "", "%s", l.ends)
}
