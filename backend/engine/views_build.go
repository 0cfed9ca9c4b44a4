package engine

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/columns"
	"github.com/failslow/falcon/backend/api/convert"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect"
)

// Pace of snapshots, and what they hold.
const (
	buildPeriod  = 100 * time.Millisecond
	buildShare   = 10                     // a picture is followed by so many times its own time
	buildCostMax = 200 * time.Millisecond // so that a stall is not followed by a longer one
	askedWithin  = 3 * time.Second        // not asked for longer: nothing is built

	snapshotEvents = 64
	incidentsMax   = 64
	laddersMax     = 16 // beside the front one
	recurringMax   = 64
	// ColumnsMax and RunLengthsMax bound one request for a series.
	ColumnsMax    = 1024
	RunLengthsMax = 256
)

// State is one published picture of the engine. It is immutable: consoles
// share it, and must not change the message.
type State struct {
	Reply *falconv1.SnapshotReply // without role, actor, series and ranks
	Ranks *columns.Table
	Worst falcon.Rank // the rank to look at, -1 without ranks
}

// stateViews builds what consoles see: one snapshot for all of them, when
// something has changed and a console asks, and the views of single things on
// request. It changes nothing else.
type stateViews struct {
	*shared

	id          string // of the engine
	status      *jobStatus
	intake      *sampleIntake
	readings    *deviceReadings
	describer   *jobDescriber
	validations *validationQueue
	links       *linkWatch
	hangs       *hangWatch
	kernel      *kernelNotes
	silicon     *siliconWatch
	paces       *paceKeeper
	waits       *heldRound
	rejoinAcks  map[falcon.Rank]rejoinAck

	snapshot atomic.Pointer[State]
	asked    atomic.Int64 // Unix ns of the last Snapshot call; the loop reads it
	columns  columns.Log  // of pictures that consoles pulled; from any goroutine

	dirty     bool // the snapshot is behind
	version   uint64
	built     time.Time
	buildCost time.Duration // what the last snapshot took of the loop's time
	levels    []shown       // by rank
	seats     seatTable
	alarms    jobAlarms
	impaired  string // what does not work of the engine itself
	culprits  culpritCache
}

// refresh publishes a new picture when something has changed, a console asks,
// and the last one is old enough.
func (sv *stateViews) refresh(now time.Time) {
	if !sv.dirty ||
		now.Sub(sv.built) < sv.buildPeriod() ||
		now.UnixNano()-sv.asked.Load() > int64(askedWithin) {
		return
	}
	sv.build(now)
}

// buildPeriod leaves the loop most of its time, however large the job is.
func (sv *stateViews) buildPeriod() time.Duration {
	return max(buildPeriod, buildShare*sv.buildCost)
}

func (sv *stateViews) build(now time.Time) {
	defer func() {
		sv.buildCost = max(0, min(sv.cfg.Now().Sub(now), buildCostMax))
	}()
	sv.version++
	sv.built, sv.dirty = now, false
	ranks, worst := sv.rankTable(now)
	reply := &falconv1.SnapshotReply{
		Version:    sv.version,
		EngineId:   sv.id,
		AtUnixNs:   now.UnixNano(),
		Job:        sv.jobView(now),
		Policy:     convert.PolicyToProto(sv.plan.Policy(), sv.state.policy.Version),
		Nodes:      sv.nodeViews(now),
		Engine:     ownBuild(),
		Validation: sv.validations.newestView(),
		Nics:       sv.readings.nicViews(),
		Recurring:  sv.recurrenceViews(),
		Recovery:   sv.newestRecovery(),
		Bars:       sv.state.barViews(now),
		Hang:       sv.hangs.view(),
		Culprits:   sv.culpritViews(now),
		Fenced:     sv.fencedNodes(),
		Events:     slices.Clone(sv.state.events[max(0, len(sv.state.events)-snapshotEvents):]),
	}
	sv.addIncidents(reply)
	sv.snapshot.Store(&State{Reply: reply, Ranks: ranks, Worst: worst})
}

func (sv *stateViews) jobView(now time.Time) *falconv1.Job {
	steady, l := sv.det.Steady(), sv.state.job.Layout
	v := &falconv1.Job{
		Name:           sv.cfg.JobName,
		Tp:             int32(l.TP),
		Dp:             int32(l.DP),
		Pp:             int32(l.PP),
		World:          int32(l.World()),
		Iteration:      steady.Iteration,
		IterationMs:    steady.CurrentMs,
		BaselineMs:     steady.BaselineMs,
		Epoch:          sv.state.job.Epoch,
		State:          string(sv.status.current(now)),
		Emulated:       sv.job.emulated,
		MicroBatches:   sv.state.job.MicroBatches,
		Exact:          sv.job.exact,
		Alarm:          sv.jobAlarm(now),
		DataAgeMs:      -1,
		PlacementOrder: sv.state.job.PlacementOrder,
		Generation:     sv.state.job.Newest(),
		Restart:        sv.status.restarting(now),
		Mesh:           l.Mesh.String(),
		LayoutDoubt:    cmp.Or(sv.state.job.Unknown, sv.job.contradiction(l)),
		Silicon:        sv.silicon.view(),
	}
	if sv.state.job.Epoch > 0 && sv.state.job.Unknown == "" {
		v.LayoutFrom = cmp.Or(sv.state.job.LayoutFrom, "adapter")
	}
	if steady.BaselineMs > 0 && steady.CurrentMs > 0 { // none is known yet in a new job epoch
		v.Slowdown = steady.CurrentMs/steady.BaselineMs - 1
	}
	v.NoSpare = clean(sv.describer.noSpare)
	v.SlowerIterations, v.End = int32(steady.Slower), sv.status.end(now)
	v.UsualMs = cmp.Or(
		steady.CurrentMs,
		sv.intake.pulse.usualMs(),
		sv.paces.usualMs(),
	)
	if at := sv.intake.pulse.at; !at.IsZero() {
		v.IterationUnixNs = at.UnixNano()
	}
	if v.IterationUnixNs != 0 && !sv.intake.lastData.IsZero() { // else its age is not known
		v.DataAgeMs = now.Sub(sv.intake.lastData).Milliseconds()
	}
	return v
}

// jobAlarm is the first thing that makes the picture itself doubtful, else what does not
// work of the engine.
func (sv *stateViews) jobAlarm(now time.Time) string {
	if sv.waits.round != nil {
		return sv.waits.text(now)
	}
	alarms := sv.alarms.of(sv.job)
	if alarms.unhooked > 0 {
		return fmt.Sprintf("%d ranks run NCCL without the hook", alarms.unhooked)
	}
	if text := sv.cluster.unseenText(); text != "" {
		return text
	}
	if t := sv.cluster.nodes.Twins(now); t != nil {
		return clean(t.Error())
	}
	if text := otherJobs(sv.cluster.nodes.Nodes(), sv.cfg.JobName); text != "" {
		return text
	}
	if name := sv.cluster.blindNode(now); name != "" {
		return fmt.Sprintf("the agent of node %s is gone: its ranks are not watched", name)
	}
	return cmp.Or(sv.describer.machine.Doubt(), alarms.traffic, sv.impaired)
}

// rankTable is what is known of all ranks, and the one to look at: a culprit,
// else the highest level, else rank 0; -1 without ranks.
func (sv *stateViews) rankTable(now time.Time) (*columns.Table, falcon.Rank) {
	l := sv.state.job.Layout
	world := l.World()
	table := columns.NewTable(sv.version, world)
	if world == 0 {
		return table, -1
	}
	culprits := sv.cluster.culprits()
	status, ms := sv.statuses(world)
	seats := sv.seats.of(sv.job, sv.state.job.Placement, sv.readings)
	stages := stageMedians(l, ms)
	fast := fastClock(seats)
	if short := world - len(sv.levels); short > 0 {
		sv.levels = append(sv.levels, make([]shown, short)...)
	}
	best := falcon.Rank(0)
	bestScore := int32(-1)
	v := &falconv1.RankView{}
	for i := range world {
		r := falcon.Rank(i)
		s := status[i]
		past := s.Slowdown
		if len(culprits) > 0 && !culprits[r] {
			past = 0 // it waits for a culprit that is named: its own past says nothing
		}
		was := &sv.levels[r].slowdown
		*was = falcon.SlowdownRamp.After(*was, worst(past, s.Ms, stages[l.Coord(r).PP], s.SelfRatio))
		lv := int32(*was)
		v.Reset()
		v.Rank, v.Level, v.Device = int32(i), lv, string(sv.state.job.Placement[i])
		v.Ms = s.Ms
		v.Slowdown = s.Slowdown
		v.SelfMs = s.SelfMs
		v.WaitMs = s.WaitMs
		v.Probability = s.Probability
		v.Iteration = s.Iteration
		v.SelfRatio = s.SelfRatio
		v.SlowSteps = int32(min(s.SlowSteps, math.MaxInt32))
		v.Failing = s.Failing
		if g := seats[i].gpu; g != nil {
			v.SmClockMhz = g.SMClockMHz
			v.TemperatureC = g.TemperatureC
			v.Busy = uint32(g.Busy)
			v.SmBusy = uint32(g.SMBusy)
			v.Gauges = g.Gauges
		}
		v.CnpPerS = seats[i].port.cnpNow(now)
		v.Health = health(seats[i].process, s.Suspect, lv, culprits[r], now)
		sv.levels[r].enterSteps(v, fast)
		table.Put(v)
		if score := score(v); score > bestScore {
			best, bestScore = r, score
		}
	}
	return table, best
}

// fastClock is what clocks of the job's GPUs are compared with.
func fastClock(seats []seatNow) float64 {
	clocks := make([]uint32, len(seats))
	for i := range seats {
		if g := seats[i].gpu; g != nil {
			clocks[i] = g.SMClockMHz
		}
	}
	return falcon.FastClock(clocks)
}

func (sv *stateViews) statuses(world int) ([]detect.RankStatus, []float64) {
	status := make([]detect.RankStatus, world)
	ms := make([]float64, world)
	for r := range world {
		status[r], _ = sv.det.Rank(falcon.Rank(r))
		ms[r] = status[r].Ms
	}
	return status, ms
}

func score(v *falconv1.RankView) int32 {
	switch v.Health {
	case falconv1.RankHealth_RANK_HEALTH_CULPRIT:
		return 100 + v.Level
	case falconv1.RankHealth_RANK_HEALTH_LOST:
		return 50
	}
	return v.Level
}

func (c *clusterView) culprits() map[falcon.Rank]bool {
	out := map[falcon.Rank]bool{}
	for _, v := range c.state.incidents {
		if v.Open() {
			for _, r := range v.Verdict.Ranks {
				out[r] = true
			}
		}
	}
	return out
}

func health(p *process, suspect bool, level int32, culprit bool, now time.Time) falconv1.RankHealth {
	switch {
	case p != nil && !p.state.GetAlive():
		return falconv1.RankHealth_RANK_HEALTH_LOST
	case culprit:
		return falconv1.RankHealth_RANK_HEALTH_CULPRIT
	case p == nil || now.Sub(p.lastSeen) > staleAfter:
		return falconv1.RankHealth_RANK_HEALTH_STALE
	case suspect || level >= 2:
		return falconv1.RankHealth_RANK_HEALTH_SLOW
	}
	return falconv1.RankHealth_RANK_HEALTH_OK
}

func (sv *stateViews) nodeViews(now time.Time) []*falconv1.NodeView {
	var out []*falconv1.NodeView
	for _, n := range sv.nodes.Nodes() {
		out = append(out, &falconv1.NodeView{
			Node:       string(n.Name),
			Connected:  n.Connected(),
			AgeMs:      n.Age(now).Milliseconds(),
			Version:    clean(n.Hello.GetVersion()),
			Dropped:    n.Beat.GetDroppedFrames(),
			StealShare: n.Steal,
			SkewMs:     sv.links.skewMs(n.Name),
			Kernel:     sv.kernel.views(n.Name, now),
			Protocol:   n.Hello.GetProtocol(),
			Formats:    formatViews(n.Hello),
			Unseen:     unseenViews(n.Beat.GetUnseen()),
			Standbys:   standbysView(n.Beat.GetStandbys()),
		})
	}
	return out
}

// fencedMost bounds the fenced nodes that a snapshot lists.
const fencedMost = 64

// fencedNodes are the nodes that are fenced now, ascending.
func (sv *stateViews) fencedNodes() []string {
	list := slices.Sorted(maps.Keys(sv.state.fences.nodes))
	return convert.Strings(list[:min(len(list), fencedMost)])
}

// front lists incidents as consoles want them: open ones first, then newest.
func (sv *stateViews) front() []falcon.Incident {
	out := slices.Clone(sv.state.incidents)
	slices.Reverse(out)
	slices.SortStableFunc(out, func(a, b falcon.Incident) int {
		switch {
		case a.Open() == b.Open():
			return 0
		case a.Open():
			return -1
		}
		return 1
	})
	return out
}

// addIncidents enters the incidents, and the ladders of the front one and of the open
// ones behind it: each can be decided on.
func (sv *stateViews) addIncidents(out *falconv1.SnapshotReply) {
	now := sv.cfg.Now()
	for i, v := range sv.front() {
		if i < incidentsMax {
			out.Incidents = append(out.Incidents, sv.state.incidentView(v))
			out.Triage = sv.state.addTriage(out.Triage, now, v, 1)
		}
		switch {
		case i == 0:
			out.Ladder = sv.ladder(v.ID)
		case v.Open() && len(out.Others) < laddersMax:
			out.Others = append(out.Others, sv.ladder(v.ID))
		}
	}
}

// ladder is the planner's view; an incident that the planner has forgotten
// still shows what the journal knows of its actions.
func (sv *stateViews) ladder(incident string) *falconv1.Ladder {
	if l, ok := sv.plan.Ladder(incident); ok {
		return sv.state.stampLadder(convert.LadderToProto(l))
	}
	out := &falconv1.Ladder{Incident: incident}
	for _, a := range sv.state.actions {
		if a.Incident == incident {
			out.Actions = append(out.Actions, sv.state.actionView(a))
		}
	}
	return out
}

// marks lists what happened from an iteration on.
func (sv *stateViews) marks(from int64) []*falconv1.Mark {
	var out []*falconv1.Mark
	add := func(iteration int64, kind string) {
		if iteration >= from && iteration != falcon.NoIteration {
			out = append(out, &falconv1.Mark{Iteration: iteration, Kind: kind})
		}
	}
	for _, v := range sv.state.incidents {
		add(v.OnsetIteration, "onset")
		add(v.RelievedIteration, "relief")
	}
	for _, a := range sv.state.actions {
		if a.State != falcon.ActionProposed && a.State != falcon.ActionVetoed {
			add(a.AppliedIteration, "applied")
			add(a.RevertedIteration, "reverted")
		}
	}
	for _, m := range sv.oplog.jitters {
		add(m.iteration, m.kind)
	}
	return out
}
