package enginetest

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/backend/api/columns"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// culprit is the slow rank: replica 2, stage 0, tp 0.
func (o *Options) culprit() int32 {
	return int32(o.TP * min(2, o.DP-1))
}

// story is the iteration as far as the story goes.
func (e *Engine) story() int64 {
	if e.opts.Healthy {
		return min(e.iter, Onset-1)
	}
	return e.iter
}

func (o *Options) world() int {
	return o.TP * o.DP * o.PP
}

func inForce(i, approved int64) bool {
	return approved != never && i >= approved+2 && i < Reverted
}

// ms is the job's time of iteration i; its noise is fixed by i.
func (e *Engine) ms(i int64) float64 {
	base := HealthyMs
	switch {
	case i == e.opts.Stray && i > 0:
		return StrayMs
	case inForce(i, e.approved) && i < Cleared:
		base = MitigatedMs
	case inForce(i, e.approved):
		base = 236 // uneven shares on healthy devices
	case !e.opts.Healthy && i >= Onset && i < Cleared:
		base = SlowMs
	}
	return base * (1 + 0.008*math.Sin(float64(i)*2.399))
}

func (e *Engine) snapshot(version uint64, r *falconv1.SnapshotRequest) *falconv1.SnapshotReply {
	s := &falconv1.SnapshotReply{
		Version:  version,
		Job:      e.job(),
		Policy:   e.policy,
		Role:     e.opts.Role,
		Actor:    "maria",
		Series:   e.series(r),
		Ladder:   e.ladder(),
		Events:   e.events[max(0, len(e.events)-64):],
		EngineId: engineID,
		AtUnixNs: e.opts.at(e.iter).UnixNano(),
	}
	if !r.Brief || e.opts.Old {
		s.Ranks = e.ranks(version)
	}
	s.Validation = e.validation()
	s.Recovery = e.recovery()
	s.Hang = e.still.verdict(e.opts.at(e.iter), e.hostile)
	s.Operators = e.operators
	s.Listening = "10.0.0.5:7440"
	s.Recent = e.recent(r.Recent)
	if e.looked != nil {
		s.Triage = []*falconv1.Triage{proto.CloneOf(e.looked)}
	}
	if e.opts.Recurring {
		before := e.opts.Start.Add(-51 * time.Hour).UnixNano()
		s.Recurring = []*falconv1.Recurrence{
			{Device: "n1.g0" + e.hostile, Times: 3, Jobs: 2, FirstUnixNs: before, LastUnixNs: s.AtUnixNs},
			{Link: "n0-n2", Times: 2, Jobs: 1, FirstUnixNs: before, LastUnixNs: before},
		}
	}
	if e.opts.Past {
		s.Culprits = pastCulprits(e.opts.at(e.iter), e.hostile)
		s.Bars = []*falconv1.Bar{{
			Name:        "n1" + e.hostile,
			By:          "dana" + e.hostile,
			Reason:      "fan is loud" + e.hostile,
			SinceUnixNs: e.opts.at(e.iter).Add(-20 * time.Minute).UnixNano(),
			UntilUnixNs: e.opts.at(e.iter).Add(100 * time.Minute).UnixNano(),
		}}
		e.reply.Store(historyAt(e.opts.at(e.iter), e.hostile))
	}
	if inc := e.incident(); inc != nil {
		s.Incidents = []*falconv1.Incident{inc}
	}
	if inc := e.linkIncident(); inc != nil { // the newest open one comes first, as from the engine
		s.Incidents = append([]*falconv1.Incident{inc}, s.Incidents...)
		s.Ladder, s.Others = e.linkLadder(), []*falconv1.Ladder{s.Ladder}
	}
	for n := range 4 {
		s.Nodes = append(s.Nodes, &falconv1.NodeView{
			Node:      fmt.Sprintf("n%d", n) + e.hostile,
			Connected: true,
			AgeMs:     40,
			Version:   "0.1.0",
		})
	}
	return s
}

func (e *Engine) job() *falconv1.Job {
	ms := e.ms(e.iter)
	j := &falconv1.Job{
		Name:         cmp.Or(e.opts.Job, "gpt-lab") + e.hostile,
		Tp:           int32(e.opts.TP),
		Dp:           int32(e.opts.DP),
		Pp:           int32(e.opts.PP),
		World:        int32(e.opts.world()),
		Iteration:    e.iter,
		IterationMs:  ms,
		BaselineMs:   HealthyMs,
		Slowdown:     ms/HealthyMs - 1,
		DataAgeMs:    120,
		Epoch:        1,
		State:        "steady",
		Emulated:     true,
		Exact:        true,
		MicroBatches: e.opts.even(),
	}
	switch {
	case e.story() < 20:
		j.State = "learning"
	case e.story() >= End:
		j.State = "finished"
	case j.Slowdown > 0.1:
		j.State = "slow"
	}
	if inForce(e.iter, e.approved) {
		j.MicroBatches = e.opts.plan()
	}
	return j
}

func (o *Options) even() []int32 {
	m := make([]int32, o.DP)
	for i := range m {
		m[i] = 8
	}
	return m
}

func (o *Options) plan() []int32 {
	m := o.even()
	slow := min(2, o.DP-1)
	m[slow] = 5
	for i, given := 0, 0; given < 3 && o.DP > 1; i = (i + 1) % o.DP {
		if i != slow {
			m[i]++
			given++
		}
	}
	return m
}

// drawn keeps ranks for all who ask for the same version, and what never
// changes for longer: large jobs are what the console is loaded with.
type drawn struct {
	version uint64
	ranks   []*falconv1.RankView
	devices []string
	table   *columns.Table
}

func (e *Engine) ranks(version uint64) []*falconv1.RankView {
	if e.drawn.version != version || len(e.drawn.ranks) == 0 {
		e.drawn.version, e.drawn.ranks = version, e.draw()
	}
	return e.drawn.ranks
}

func (e *Engine) draw() []*falconv1.RankView {
	n := e.opts.world()
	if len(e.drawn.devices) != n {
		e.drawn.devices = make([]string, n)
		for r := range n {
			e.drawn.devices[r] = fmt.Sprintf("n%d.g%d%s", r/2, r%2, e.hostile)
		}
	}
	out, block, ms := make([]*falconv1.RankView, n), make([]falconv1.RankView, n), e.ms(e.iter)
	slow := e.story() >= Onset && e.story() < Cleared
	for r := range out {
		out[r] = &block[r]
		e.rank(out[r], int32(r), ms, slow)
	}
	e.opts.flicker(out, e.iter)
	say(out)
	if n > 6 && e.story() > 100 {
		out[n-1].Health = falconv1.RankHealth_RANK_HEALTH_STALE
	}
	if e.story() >= End { // the processes have gone, as after a real job
		for _, r := range out {
			r.Health = falconv1.RankHealth_RANK_HEALTH_LOST
		}
	}
	return out
}

// say enters the levels that the engine says beside measurements. Nothing here
// stays at a bound, so that none has to be held.
func say(ranks []*falconv1.RankView) {
	clocks := make([]uint32, len(ranks))
	for i, v := range ranks {
		clocks[i] = v.SmClockMhz
	}
	fast := falcon.FastClock(clocks)
	step := func(r *falcon.Ramp, x float64, measured bool) int32 {
		if !measured {
			return 1
		}
		return int32(2 + r.Level(x))
	}
	for _, v := range ranks {
		v.WaitStep = step(
			&falcon.WaitRamp,
			100*v.WaitMs/v.Ms,
			v.Ms > 0 && v.SelfRatio > 0,
		)
		v.TemperatureStep = step(&falcon.TemperatureRamp, float64(v.TemperatureC), v.TemperatureC > 0)
		v.ClockStep = step(
			&falcon.ClockRamp,
			100*float64(v.SmClockMhz)/fast,
			v.SmClockMhz > 0,
		)
		v.CnpStep = step(&falcon.CNPRamp, v.CnpPerS, v.CnpPerS >= 0)
	}
}

// flicker warms ranks that lie scattered, others in each iteration.
func (o *Options) flicker(ranks []*falconv1.RankView, iter int64) {
	const stride = 7919 // a prime, so that neighbours in time are none in place
	for k := range o.Flicker {
		at := (int(iter)*o.Flicker + k) * stride % len(ranks)
		if r := ranks[at]; r.Health == falconv1.RankHealth_RANK_HEALTH_OK {
			r.Level = 3
			if r.SelfRatio > 0 {
				r.SelfRatio = 1.3
			}
		}
	}
}

func (e *Engine) rank(v *falconv1.RankView, r int32, ms float64, slow bool) {
	v.Rank, v.Device, v.Ms, v.Slowdown, v.Iteration = r, e.drawn.devices[r], ms, ms/HealthyMs-1, e.iter
	v.Health = falconv1.RankHealth_RANK_HEALTH_OK
	v.Level = int32(min(6, max(0, (ms/HealthyMs-1)*7)))
	v.SmClockMhz = 1980
	v.TemperatureC = uint32(58 + r%5)
	if e.story() >= Located {
		v.SelfMs = 10 + 0.02*float64(r%3)
		v.SelfRatio = 1 + 0.004*float64(r%4)
		v.WaitMs = 42
	}
	if r != e.opts.culprit() || !slow {
		return
	}
	v.SmClockMhz = 990
	v.TemperatureC = 87
	v.Probability = 0.98
	v.Health = falconv1.RankHealth_RANK_HEALTH_SLOW
	if e.story() >= Located {
		v.Health = falconv1.RankHealth_RANK_HEALTH_CULPRIT
		v.SelfMs = 20.1
		v.SelfRatio = 2.01
		v.WaitMs = 0.4
	}
}

func (e *Engine) series(r *falconv1.SnapshotRequest) *falconv1.Series {
	rank := r.Rank
	if rank < 0 {
		rank = e.opts.culprit()
	}
	n := min(int64(r.Columns), e.iter+1)
	s := &falconv1.Series{
		Rank:           rank,
		FirstIteration: e.iter + 1 - n,
		RunLengths:     r.RunLengths,
		Threshold:      0.9,
		Window:         5,
		BaselineMs:     HealthyMs,
	}
	for i := s.FirstIteration; i <= e.iter; i++ {
		p := e.posterior(i, max(r.RunLengths, 16))
		s.Ms = append(s.Ms, float32(e.ms(i)))
		if (i-s.FirstIteration)%32 == 0 {
			s.Moments = append(s.Moments, &falconv1.Moment{
				Iteration: i,
				UnixNs:    e.opts.at(i).UnixNano(),
			})
		}
		recent := float32(0)
		best := 0
		for l, v := range p {
			if l <= 5 {
				recent += v
			}
			if v > p[best] {
				best = l
			}
		}
		s.Probability = append(s.Probability, recent)
		s.MapRunLength = append(s.MapRunLength, int32(best))
		s.Posterior = append(s.Posterior, p[:r.RunLengths]...)
	}
	s.Marks = e.marks()
	return s
}

// posterior draws what a run-length posterior looks like after changes; it is
// a picture for tests, not an inference.
func (e *Engine) posterior(i int64, rows int32) []float32 {
	p := make([]float32, rows)
	old := int64(0)
	last := int64(0)
	for _, c := range e.changes() {
		if c <= i {
			old, last = last, c
		}
	}
	put := func(l int64, v float64) {
		p[min(l, int64(rows)-1)] += float32(v)
	}
	age := i - last
	w := 1 - math.Exp(-1.2*float64(age+1))
	put(age, w*0.98)
	put(max(0, age-1), w*0.015)
	put(max(0, age-3), w*0.003)
	put(i-old, 1-w)
	put(0, 0.002)
	return p
}

func (e *Engine) changes() []int64 {
	if e.opts.Healthy {
		return nil
	}
	c := []int64{Onset}
	if e.approved != never {
		c = append(c, e.approved+2)
	}
	return append(c, Cleared, Reverted)
}

func (e *Engine) marks() []*falconv1.Mark {
	var m []*falconv1.Mark
	add := func(at, known int64, kind string) {
		if e.story() >= known {
			m = append(m, &falconv1.Mark{Iteration: at, Kind: kind})
		}
	}
	add(Onset, Detected, "onset")
	if e.approved != never {
		add(e.approved+2, e.approved+2, "applied")
		add(Reverted, Reverted, "reverted")
	}
	add(Relieved, Seen, "relief")
	return m
}

func (e *Engine) incident() *falconv1.Incident {
	if e.story() < Detected {
		return nil
	}
	inc := &falconv1.Incident{
		Id:                "INC-0001",
		State:             "verified",
		OnsetIteration:    Onset,
		DetectedIteration: Detected,
		RelievedIteration: never,
		HealthyMs:         HealthyMs,
		SlowMs:            SlowMs,
		Probability:       0.98,
	}
	if e.story() >= Located {
		inc.State, inc.Verdict = "located", e.verdict()
	}
	inc.OnsetUnixNs = e.opts.at(Onset).UnixNano()
	if e.story() >= Seen {
		inc.State, inc.RelievedIteration, inc.EndUnixNs = "relieved", Relieved, e.opts.at(Seen).UnixNano()
	}
	if e.story() >= Reverted {
		inc.State = "closed"
	}
	return inc
}

func (e *Engine) verdict() *falconv1.Verdict {
	return &falconv1.Verdict{
		Cause:      "gpu_degradation",
		Devices:    []string{"n1.g0" + e.hostile},
		Ranks:      []int32{e.opts.culprit()},
		Severity:   3,
		Confidence: 0.97,
		Evidence: []*falconv1.Evidence{
			{
				Kind: "timing",
				Text: fmt.Sprintf(
					"rank %d: self time 20.1 ms a micro-batch, 2.01 times the median of its peers%s",
					e.opts.culprit(), e.hostile,
				),
			},
			{
				Kind: "timing",
				Text: "the data-parallel group of stage 0 waits for replica 2 in every iteration",
			},
			{Kind: "counter", Text: "n1.g0: SM clock 990 of 1980 MHz, hardware thermal slowdown, 87 °C"},
			{Kind: "counter", Text: "n1: CPU steal share 0.00, no host pressure", Against: false},
		},
	}
}

func (e *Engine) ladder() *falconv1.Ladder {
	if e.story() < Detected {
		return nil
	}
	end := min(e.iter, Cleared)
	impact := 0.0
	for i := int64(Onset); i < end; i++ {
		impact += e.ms(i) - HealthyMs
	}
	l := &falconv1.Ladder{
		Incident:     "INC-0001",
		ImpactMs:     impact,
		LostGpuHours: impact * float64(e.opts.world()) / 3.6e6,
		Rungs: []*falconv1.RungView{
			{
				Rung:        "S1",
				Applicable:  true,
				Reason:      "ignore: cheapest while the loss is below the price of acting",
				PredictedMs: SlowMs,
				ImpactMs:    impact,
				Current:     e.approved == never,
			},
			{
				Rung:         "S2",
				Applicable:   true,
				Reason:       "give replica 2 fewer micro-batches; gradients stay weighted by samples" + e.hostile,
				OverheadMs:   31,
				GainMs:       SlowMs - MitigatedMs,
				BreakEven:    1,
				ImpactMs:     impact,
				PredictedMs:  MitigatedMs,
				Current:      inForce(e.iter, e.approved),
				PlanHash:     "9f2c41d0",
				Approval:     "person",
				MicroBatches: e.opts.plan(),
				IfWrong:      "reverted after 10 iterations without a gain",
			},
			{
				Rung:      "S3",
				Reason:    "one node holds one slow GPU of one stage: no swap shortens the longest stage",
				BreakEven: never,
			},
			{
				Rung:        "S4",
				Variant:     "restart",
				Applicable:  true,
				Reason:      "checkpoint, and all ranks again on healthy nodes",
				OverheadMs:  90_000,
				GainMs:      SlowMs - HealthyMs,
				BreakEven:   474,
				ImpactMs:    impact,
				PredictedMs: HealthyMs,
				PlanHash:    "51d7aa02",
				ClockMs:     max(0, 90_000-impact),
				DueInMs:     max(0, 90_000-impact) / (SlowMs - HealthyMs) * SlowMs,
				Approval:    "person",
				Next:        true,
				IfWrong:     "the job runs on where it is; nothing is reverted",
			},
			{Rung: "S4", Variant: "replace", Reason: "no spare node is attached", BreakEven: never},
		},
		LossPerMinuteGpuHours: (SlowMs - HealthyMs) / SlowMs * float64(e.opts.world()) / 60,
		Model:                 "calibrated from a profile of this job; off by 0.8% on 1 action",
	}
	e.opts.climb(l.Rungs)
	if a := e.action(); a != nil {
		l.Actions = []*falconv1.Action{a}
		if a.State == "proposed" {
			l.Proposal = a
		}
	}
	return l
}

func (e *Engine) action() *falconv1.Action {
	if e.story() < Proposed {
		return nil
	}
	a := &falconv1.Action{
		Id:                "INC-0001/S2/1",
		Incident:          "INC-0001",
		Rung:              "S2",
		State:             "proposed",
		PlanHash:          "9f2c41d0",
		MicroBatches:      e.opts.plan(),
		Previous:          e.opts.even(),
		ProposedIteration: Proposed,
		ProposedUnixNs:    e.opts.at(Proposed).UnixNano(),
		AppliedIteration:  never,
		RevertedIteration: never,
		BeforeMs:          SlowMs,
		PredictedMs:       MitigatedMs,
		OverheadMs:        31,
		Why:               "the accumulated loss has reached the overhead of S2",
	}
	if e.opts.Undo > 0 || e.opts.Two {
		a.Approvals = e.approvals
	}
	switch {
	case e.vetoed:
		a.State, a.DecidedBy, a.Reason = "vetoed", e.by, e.reason
	case e.approved == never && e.story() >= Seen:
		a.State = "expired"
		a.Reason = "the fault cleared before a decision"
	case e.approved != never:
		e.progress(a)
	}
	e.opts.other(a)
	return a
}

func (e *Engine) progress(a *falconv1.Action) {
	a.DecidedBy = e.by
	a.State = "dispatched"
	if e.opts.Undo > 0 && e.story() < e.approved {
		a.State, a.DecidedUnixNs = "approved", e.opts.at(e.approved-e.opts.undo()).UnixNano()
		a.DeadlineUnixNs = e.opts.at(e.approved).UnixNano()
		return
	}
	if e.story() >= e.approved+2 {
		a.State = "applied"
		a.AppliedIteration = e.approved + 2
		a.AppliedUnixNs = e.opts.at(e.approved + 2).UnixNano()
	}
	if e.story() >= e.approved+8 {
		a.State, a.MeasuredMs = "kept", 262.3
	}
	if e.undone > 0 {
		a.State, a.RevertReason = "reverting", "undone by maria"
	}
	if e.story() >= Seen {
		a.State = "reverting"
	}
	if e.story() >= Reverted {
		a.State, a.RevertedIteration, a.RevertedUnixNs = "reverted", Reverted, e.opts.at(Reverted).UnixNano()
	}
}
