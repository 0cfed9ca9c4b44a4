package mitigate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/failslow/falcon"
)

// rig drives a planner and gathers what it says.
type rig struct {
	p      *Planner
	orders []falcon.Order
	acted  []Acted
	newest map[string]falcon.Action
	notes  []string
	impact map[string]Impact
}

func newRig(cfg Config) *rig {
	return &rig{
		p:      New(cfg),
		newest: map[string]falcon.Action{},
		impact: map[string]Impact{},
	}
}

func (r *rig) step(in ...Input) {
	for len(in) > 0 {
		v := in[0]
		in = in[1:]
		r.p.Step(time.Time{}, v)
		ready := r.p.Ready()
		if ready.Look != "" { // the ranks are measured at once, and are as they were
			in = append([]Input{Measured{Begun: time.Unix(1, 0)}}, in...)
		}
		r.orders = append(r.orders, ready.Orders...)
		r.acted = append(r.acted, ready.Acted...)
		for _, a := range ready.Actions {
			r.newest[a.ID] = a
		}
		for _, n := range ready.Notes {
			r.notes = append(r.notes, n.Text)
		}
		for _, i := range ready.Impacts {
			r.impact[i.Incident] = i
		}
		r.p.Advance()
	}
}

func (r *rig) iterations(from, to int64, ms float64) {
	for i := from; i <= to; i++ {
		r.step(Iteration{Index: i, Ms: ms})
	}
}

// restored is what a journal would give a new planner.
func (r *rig) restored() Restored {
	out := Restored{NextOrder: uint64(len(r.orders)) + 1}
	for _, a := range r.newest {
		out.Actions = append(out.Actions, a)
	}
	slices.SortFunc(out.Actions, func(a, b falcon.Action) int {
		return strings.Compare(a.ID, b.ID)
	})
	for _, i := range r.impact {
		out.Impacts = append(out.Impacts, i)
	}
	return out
}

var autoS2 = SetPolicy{falcon.Policy{Mode: falcon.ModeAuto, Cap: falcon.RungS2}}

func fourReplicas(epoch uint64, m ...int32) Job {
	return Job{
		Epoch:        epoch,
		Layout:       falcon.Layout{TP: 1, DP: 4, PP: 1},
		MicroBatches: m,
		GPUs:         4,
		Can:          allCan,
	}
}

// allCan is an adapter that can do everything.
var allCan = falcon.Can{
	Declared:   true,
	Park:       true,
	Split:      true,
	Place:      true,
	Checkpoint: true,
}

func gpuIncident(id string, rank falcon.Rank, onset int64) falcon.Incident {
	return falcon.Incident{
		ID:                id,
		State:             falcon.IncidentLocated,
		OnsetIteration:    onset,
		RelievedIteration: falcon.NoIteration,
		HealthyMs:         80,
		SlowMs:            160,
		Verdict: falcon.Verdict{
			Cause:   falcon.CauseGPU,
			Devices: []falcon.Device{falcon.NewDevice("n", int(rank))},
			Ranks:   []falcon.Rank{rank},
		},
	}
}

func relieved(v falcon.Incident, at int64) Incident {
	v.State = falcon.IncidentRelieved
	v.RelievedIteration = at
	return Incident{v}
}

// inForce brings INC-0001's S2 for rank 2 into force at iteration 46.
func inForceRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(Config{})
	r.step(fourReplicas(1, 8, 8, 8, 8), autoS2)
	r.iterations(30, 39, 80)
	r.iterations(40, 44, 160)
	r.step(
		Incident{gpuIncident("INC-0001", 2, 40)},
		Speeds{Incident: "INC-0001", SelfMs: []float64{10, 10, 20, 10}},
	)
	if len(r.orders) != 1 {
		t.Fatalf("orders %v, notes %v", r.orders, r.notes)
	}
	r.step(Committed{Order: 1, Iteration: 46})
	return r
}

func TestActionsOfIncidentsNotYetToldAreLeftAlone(t *testing.T) {
	r := inForceRig(t)
	r.iterations(46, 60, 90)
	q := newRig(Config{})
	q.step(fourReplicas(1, 9, 9, 5, 9), autoS2, r.restored(), Incident{falcon.Incident{
		ID:                "INC-0000",
		State:             falcon.IncidentClosed,
		RelievedIteration: 5,
	}})
	if len(q.orders) != 0 || len(q.newest) != 0 {
		t.Fatalf("undone before its incident was reported: %v %v", q.orders, q.newest)
	}
	q.step(relieved(gpuIncident("INC-0001", 2, 40), 70))
	if len(q.orders) != 1 || !slices.Equal(q.orders[0].MicroBatches, []int32{8, 8, 8, 8}) {
		t.Errorf("orders %v: the base split must come back over a restart", q.orders)
	}
}

// The iterations right after an action may go by while the engine is down.
func TestGainIsMeasuredAlsoWhenItsFirstIterationsWereMissed(t *testing.T) {
	r := inForceRig(t)
	q := newRig(Config{})
	q.step(
		fourReplicas(1, 9, 9, 5, 9),
		autoS2,
		r.restored(),
		Incident{gpuIncident("INC-0001", 2, 40)},
	)
	q.iterations(300, 320, 90)
	if a := q.newest["INC-0001/S2/1"]; a.State != falcon.ActionKept || a.MeasuredMs != 90 {
		t.Errorf("action %+v", a)
	}
}

func TestMissedGainIsUndoneAfterAFreeze(t *testing.T) {
	r := inForceRig(t)
	frozen := autoS2
	frozen.Policy.Frozen = true
	r.step(frozen)
	r.iterations(46, 60, 200)
	if a := r.newest["INC-0001/S2/1"]; a.State != falcon.ActionKept || a.RevertReason == "" {
		t.Fatalf("frozen: %+v", a)
	}
	r.step(autoS2)
	a := r.newest["INC-0001/S2/1"]
	if a.State != falcon.ActionReverting ||
		!strings.Contains(a.RevertReason, "did not help") ||
		a.Reason != "automatic up to S2" {
		t.Errorf("after the freeze: %+v", a)
	}
}

func TestRestartedJobEndsWhatWasInForce(t *testing.T) {
	r := inForceRig(t)
	r.iterations(46, 60, 90)
	r.step(fourReplicas(2, 8, 8, 8, 8))
	a := r.newest["INC-0001/S2/1"]
	if a.State != falcon.ActionReverted ||
		!strings.Contains(a.RevertReason, "restarted") ||
		!r.acted[len(r.acted)-1].Reverted {
		t.Fatalf("action %+v, announced %v", a, r.acted)
	}
	r.iterations(0, 9, 160)
	r.step(
		Incident{gpuIncident("INC-0001", 2, 40)},
		Speeds{Incident: "INC-0001", SelfMs: []float64{10, 10, 20, 10}},
	)
	r.iterations(10, 40, 160)
	if len(r.orders) != 2 || r.orders[1].Epoch != 2 {
		t.Errorf("orders %v: the fault lasts, S2 is due again in the new epoch", r.orders)
	}
	l, _ := r.p.Ladder("INC-0001")
	if want := 5*80.0 + 15*10 + 41*80; math.Abs(l.ImpactMs-want) > 1e-6 {
		t.Errorf("impact %.1f, want %.1f: both epochs count", l.ImpactMs, want)
	}
}

func TestPlanOfAnotherBatchIsDropped(t *testing.T) {
	r := newRig(Config{})
	r.step(fourReplicas(1, 8, 8, 8, 8))
	r.iterations(40, 44, 160)
	r.step(
		Incident{gpuIncident("INC-0001", 2, 40)},
		Speeds{Incident: "INC-0001", SelfMs: []float64{10, 10, 20, 10}},
	)
	first := r.newest["INC-0001/S2/1"]
	r.step(fourReplicas(1, 16, 16, 16, 16))
	r.iterations(45, 50, 320)
	if err := r.p.Check(Decision{Action: first.ID, PlanHash: first.PlanHash, Approve: true}); err == nil {
		t.Error("a plan for 32 micro-batches was approved for a batch of 64")
	}
	a := r.newest["INC-0001/S2/2"]
	if a.State != falcon.ActionProposed || totalOf(a.MicroBatches) != 64 {
		t.Errorf("new proposal %+v", a)
	}
}

// While another fault lasts, undoing one action leaves the split that is best
// for the other, not the one that was planned for both.
func TestRevertLeavesTheSplitForTheOtherFault(t *testing.T) {
	r := inForceRig(t)
	r.iterations(46, 60, 90)
	second := gpuIncident("INC-0002", 0, 61)
	r.iterations(61, 65, 180)
	r.step(Incident{second}, Speeds{
		Incident: "INC-0002",
		SelfMs:   []float64{20, 10, 20, 10},
	})
	r.iterations(66, 68, 180)
	if len(r.orders) != 2 {
		t.Fatalf("orders %v, notes %v", r.orders, r.notes)
	}
	r.step(Committed{Order: 2, Iteration: 70})
	r.iterations(70, 85, 110)
	r.step(relieved(gpuIncident("INC-0001", 2, 40), 86))
	if len(r.orders) != 3 || !slices.Equal(r.orders[2].MicroBatches, []int32{5, 9, 9, 9}) {
		t.Fatalf("orders %v, notes %q", r.orders, r.notes)
	}
	r.step(Committed{Order: 3, Iteration: 90})
	q := newRig(Config{})
	q.step(
		fourReplicas(1, 5, 9, 9, 9),
		autoS2,
		r.restored(),
		relieved(gpuIncident("INC-0001", 2, 40), 86),
		relieved(second, 120),
	)
	if len(q.orders) != 1 || !slices.Equal(q.orders[0].MicroBatches, []int32{8, 8, 8, 8}) {
		t.Errorf("last revert %v", q.orders)
	}
}

func TestImpactNeverShrinks(t *testing.T) {
	r := inForceRig(t)
	r.iterations(46, 333, 90)
	before, _ := r.p.Ladder("INC-0001")
	q := newRig(Config{})
	q.step(
		fourReplicas(1, 9, 9, 5, 9),
		autoS2,
		r.restored(),
		Incident{gpuIncident("INC-0001", 2, 40)},
	)
	q.iterations(334, 334, 90)
	after, _ := q.p.Ladder("INC-0001")
	if math.Abs(after.ImpactMs-before.ImpactMs-10) > 1e-6 || after.LostGPUh < before.LostGPUh {
		t.Errorf("impact %.1f ms and %.6f GPU-h before, %.1f and %.6f after",
			before.ImpactMs, before.LostGPUh, after.ImpactMs, after.LostGPUh)
	}
	q.step(relieved(gpuIncident("INC-0001", 2, 40), 335))
	closed := newRig(Config{})
	closed.step(
		fourReplicas(1, 8, 8, 8, 8),
		q.restored(),
		relieved(gpuIncident("INC-0001", 2, 40), 335),
	)
	if l, _ := closed.p.Ladder("INC-0001"); l.ImpactMs != after.ImpactMs {
		t.Errorf("a relieved incident cost %.1f ms and costs %.1f after a restart",
			after.ImpactMs, l.ImpactMs)
	}
}

// The vote is the commit, also for an order that was given up on.
func TestLateCommitCounts(t *testing.T) {
	r := newRig(Config{})
	r.step(fourReplicas(1, 8, 8, 8, 8), autoS2)
	r.iterations(40, 44, 160)
	r.step(
		Incident{gpuIncident("INC-0001", 2, 40)},
		Speeds{Incident: "INC-0001", SelfMs: []float64{10, 10, 20, 10}},
	)
	r.step(Undeliverable{Order: 1, Reason: "deadline"})
	if a := r.newest["INC-0001/S2/1"]; a.State != falcon.ActionFailed {
		t.Fatalf("%+v", a)
	}
	r.step(Committed{
		Order:        1,
		Iteration:    47,
		MicroBatches: []int32{9, 9, 5, 9},
	})
	if a := r.newest["INC-0001/S2/1"]; a.State != falcon.ActionApplied || a.AppliedIteration != 47 {
		t.Fatalf("%+v", a)
	}
	r.step(relieved(gpuIncident("INC-0001", 2, 40), 50))
	n := len(r.orders)
	if n != 2 || !slices.Equal(r.orders[1].MicroBatches, []int32{8, 8, 8, 8}) {
		t.Errorf("orders %v", r.orders)
	}
}

func TestFailedOrderIsOfferedAgainAFewTimes(t *testing.T) {
	r := newRig(Config{})
	r.step(fourReplicas(1, 8, 8, 8, 8), autoS2)
	r.iterations(40, 44, 160)
	r.step(
		Incident{gpuIncident("INC-0001", 2, 40)},
		Speeds{Incident: "INC-0001", SelfMs: []float64{10, 10, 20, 10}},
	)
	for i := range int64(20) {
		r.step(Undeliverable{Order: uint64(len(r.orders)), Reason: "no agent"})
		r.iterations(45+30*i, 45+30*i+29, 160)
	}
	if len(r.orders) != FailuresMost {
		t.Errorf("%d orders, want %d", len(r.orders), FailuresMost)
	}
}

func TestProposalBecomesAutomaticWithThePolicy(t *testing.T) {
	r := newRig(Config{})
	r.step(fourReplicas(1, 8, 8, 8, 8))
	r.iterations(40, 44, 160)
	r.step(
		Incident{gpuIncident("INC-0001", 2, 40)},
		Speeds{Incident: "INC-0001", SelfMs: []float64{10, 10, 20, 10}},
	)
	if len(r.orders) != 0 {
		t.Fatal("ordered without a decision")
	}
	r.step(autoS2)
	if len(r.orders) != 1 {
		t.Error("the policy allows it now, and it still waits")
	}
}

// An approval that could not be ordered yet is not ordered in observe mode.
func TestObserveOrdersNothing(t *testing.T) {
	r := newRig(Config{})
	frozen := SetPolicy{falcon.Policy{Mode: falcon.ModeApprove}}
	r.step(fourReplicas(1, 8, 8, 8, 8), frozen)
	r.iterations(40, 44, 160)
	r.step(
		Incident{gpuIncident("INC-0001", 2, 40)},
		Speeds{Incident: "INC-0001", SelfMs: []float64{10, 10, 20, 10}},
	)
	a := r.newest["INC-0001/S2/1"]
	r.p.incidents.byID("INC-0001").proposal().State = falcon.ActionApproved
	r.step(SetPolicy{falcon.Policy{Mode: falcon.ModeObserve}})
	r.iterations(45, 50, 160)
	if len(r.orders) != 0 {
		t.Errorf("%s was ordered in observe mode", a.ID)
	}
}

func TestStepUpOnAnOlderPlanIsRefused(t *testing.T) {
	r := newRig(Config{OverheadsMs: map[falcon.Rung]float64{falcon.RungS2: 1e9}})
	r.step(fourReplicas(1, 8, 8, 8, 8))
	r.iterations(40, 44, 160)
	r.step(
		Incident{gpuIncident("INC-0001", 2, 40)},
		Speeds{Incident: "INC-0001", SelfMs: []float64{10, 10, 20, 10}},
	)
	d := Decision{
		Incident: "INC-0001",
		Rung:     falcon.RungS2,
		Approve:  true,
		By:       "jon",
		PlanHash: "0000",
	}
	if err := r.p.Check(d); err == nil || !strings.Contains(err.Error(), "look again") {
		t.Errorf("stale plan: %v", err)
	}
	d.PlanHash = planHash(
		"INC-0001",
		falcon.RungS2,
		1,
		[]int32{9, 9, 5, 9},
		"",
		nil,
	)
	if err := r.p.Check(d); err != nil {
		t.Errorf("the present plan: %v", err)
	}
}

func TestHugeBatchIsNotPriced(t *testing.T) {
	r := newRig(Config{})
	r.step(fourReplicas(1, math.MaxInt32, math.MaxInt32, math.MaxInt32, math.MaxInt32))
	r.iterations(40, 44, 160)
	r.step(
		Incident{gpuIncident("INC-0001", 2, 40)},
		Speeds{Incident: "INC-0001", SelfMs: []float64{10, 10, math.Inf(1), 10}},
	)
	if len(r.newest) != 0 || !strings.Contains(fmt.Sprint(r.notes), "more than") {
		t.Errorf("actions %v, notes %v", r.newest, r.notes)
	}
}

// A burst that passed, or whose cause is unknown, never leads to an action,
// whatever the policy, also not by hand.
func TestUnknownCauseNeverActs(t *testing.T) {
	r := newRig(Config{})
	r.step(fourReplicas(1, 8, 8, 8, 8), autoS2)
	r.iterations(40, 60, 160)
	v := gpuIncident("INC-0001", 2, 40)
	v.Verdict = falcon.Verdict{Cause: falcon.CauseUnknown}
	for _, state := range []falcon.IncidentState{falcon.IncidentVerified, falcon.IncidentLocated} {
		v.State = state
		r.step(Incident{v}, Speeds{
			Incident: "INC-0001",
			SelfMs:   []float64{10, 10, 20, 10},
		})
		r.iterations(
			r.p.iterations.newestIndex()+1,
			r.p.iterations.newestIndex()+40,
			160,
		)
		if err := r.p.Check(Decision{Incident: "INC-0001", Rung: falcon.RungS2, Approve: true}); err == nil {
			t.Errorf("%s: stepping up was allowed", state)
		}
	}
	r.step(relieved(v, r.p.iterations.newestIndex()))
	if len(r.newest) != 0 || len(r.orders) != 0 {
		t.Errorf("actions %v", r.newest)
	}
}

// What fits a replica's memory bounds the split.
func TestSplitKeepsToTheJobsBounds(t *testing.T) {
	r := newRig(Config{})
	j := fourReplicas(1, 8, 8, 8, 8)
	j.MicroMax = []int32{10, 10, 10, 10}
	j.MicroMultiple = []int32{2, 2, 2, 2}
	r.step(j, autoS2)
	r.iterations(40, 44, 160)
	r.step(
		Incident{gpuIncident("INC-0001", 2, 40)},
		Speeds{Incident: "INC-0001", SelfMs: []float64{10, 10, 20, 10}},
	)
	if len(r.orders) != 1 {
		t.Fatalf("orders %v, notes %q", r.orders, r.notes)
	}
	for i, m := range r.orders[0].MicroBatches {
		if m > 10 || m%2 != 0 {
			t.Errorf("replica %d gets %d of %v", i, m, r.orders[0].MicroBatches)
		}
	}
}

// A launch that failed because the job runs by other hands is not tried again.
func TestRestartByOtherHandsIsNotLaunchedAgain(t *testing.T) {
	sc := newScript(t)
	for _, cmd := range []string{
		"job epoch=1 tp=1 dp=1 pp=4 m=8 per=1 spares=n8 launch=true",
		"policy mode=auto cap=S4 owner=oncall",
		"iterations from=40 to=75 ms=210",
		"incident id=INC-0001 state=located onset=40 relieved=-1 healthy=110 slow=210 cause=gpu_degradation devices=n1.g0",
		"profile id=INC-0001 self=10 dp=0 pp=1 mbs=10000 slow=n1.g0:2",
		"commit order=1 at=76 status=0 resume=76",
		"left order=1",
		"job epoch=2 tp=1 dp=1 pp=4 m=8 per=1 spares=n8 launch=true",
	} {
		sc.play(cmd)
	}
	said := strings.Join(sc.play("launched generation=1 failed=somebody-else-started-the-job"), "\n")
	a := sc.actions[len(sc.actions)-1]
	if a.Rung != falcon.RungS4 ||
		a.State != falcon.ActionFailed ||
		strings.Contains(said, "launch generation") {
		t.Errorf("%s is %s: %s", a.ID, a.State, said)
	}
}
