package mitigate

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
	"github.com/failslow/falcon/mitigate/topology"
)

// grid is a simulated job that follows orders: dp × 2 ranks, one a node,
// with slow GPUs; the truth of its iteration times is the calibrated model.
type grid struct {
	*rapid.T
	r         *rig
	job       Job
	model     cost.Model // as calibrated at first
	slow      map[falcon.Device]float64
	overheads map[falcon.Rung]float64
	taken     []falcon.Rung // by the time they took force
	answered  int
	extra     float64 // of the next iteration: what S2 costs
	paid      float64 // beyond iterations
	at        int64
}

const gridHealthy = 90.0

func newGridJob(t *rapid.T) *grid {
	g := &grid{
		T:         t,
		slow:      map[falcon.Device]float64{},
		overheads: map[falcon.Rung]float64{},
	}
	l := falcon.Layout{
		TP: 1,
		DP: rapid.IntRange(3, 4).Draw(t, "dp"),
		PP: 2,
	}
	g.job = Job{
		Epoch:     1,
		Layout:    l,
		GPUs:      l.World(),
		Can:       allCan,
		CanLaunch: true,
	}
	for r := range l.World() {
		g.job.Placement = append(g.job.Placement, falcon.NewDevice(falcon.Node(fmt.Sprintf("n%02d", r)), 0))
		g.job.Spares = append(g.job.Spares, falcon.Node(fmt.Sprintf("s%02d", r)))
	}
	g.job.MicroBatches = slices.Repeat([]int32{8}, l.DP)
	for range rapid.IntRange(1, 2).Draw(t, "stragglers") {
		d := g.job.Placement[rapid.IntRange(0, l.World()-1).Draw(t, "straggler")]
		g.slow[d] = rapid.Float64Range(1.3, 4).Draw(t, "slowness")
	}
	for _, r := range []falcon.Rung{falcon.RungS2, falcon.RungS3, falcon.RungS4} {
		g.overheads[r] = rapid.Float64Range(1, 6000).Draw(t, "overhead "+string(r))
	}
	g.r = newRig(Config{
		OverheadsMs:       g.overheads,
		MinGain:           1e-6,
		SettleIterations:  1,
		MeasureIterations: 1,
	})
	return g
}

// ms is the simulated iteration time at present, without what actions cost.
func (g *grid) ms() float64 {
	m := g.model
	m.Slow = g.slow
	return m.Iteration(g.job.Placement, g.job.MicroBatches).IterationMs
}

func (g *grid) begin() {
	v := falcon.Incident{
		ID:                "INC-0001",
		State:             falcon.IncidentLocated,
		RelievedIteration: falcon.NoIteration,
		HealthyMs:         gridHealthy,
		SlowMs:            2 * gridHealthy,
		Verdict:           falcon.Verdict{Cause: falcon.CauseGPU},
	}
	var self []float64
	for _, d := range g.job.Placement {
		self = append(self, 10*max(1, g.slow[d]))
		if g.slow[d] > 1 {
			v.Verdict.Devices = append(v.Verdict.Devices, d)
		}
	}
	profile := falcon.JobProfile{
		SelfMs: self,
		Groups: []falcon.GroupTransfer{{
			Dimension: falcon.DimWorld,
			Ranks:     []falcon.Rank{0, 1},
			Calls:     1,
			Bytes:     1,
		}},
	}
	g.r.step(
		g.job,
		SetPolicy{falcon.Policy{
			Mode:  falcon.ModeAuto,
			Cap:   falcon.RungS4,
			Owner: "x",
		}},
		Incident{v},
		Speeds{Incident: v.ID, Profile: profile},
	)
	if m := g.r.p.profile.newest; m != nil && m.model != nil { // the detector tells what the job takes
		g.model = *m.model
		v.SlowMs = g.ms()
		g.r.step(Incident{v})
	}
}

// obey carries the newest order out; the ranks agree at once.
func (g *grid) obey() {
	for ; g.answered < len(g.r.orders); g.answered++ {
		o := g.r.orders[g.answered]
		c := Committed{Order: o.ID, Iteration: g.at, Resume: g.at}
		switch o.Kind {
		case falcon.OrderMicroBatches:
			g.job.MicroBatches = o.MicroBatches
			if a := g.r.p.incidents.actionUnderWay(); a.Rung == falcon.RungS2 {
				g.extra = g.overheads[falcon.RungS2]
				g.taken = append(g.taken, falcon.RungS2)
			}
			g.r.step(c)
		case falcon.OrderPlacement:
			was := slices.Clone(g.job.Placement)
			for b, to := range o.Blocks {
				g.job.Placement[to] = was[b]
			}
			c.Swap = &falcon.Swap{StepMs: [4]float64{g.overheads[falcon.RungS3]}}
			g.paid += g.overheads[falcon.RungS3]
			g.taken = append(g.taken, falcon.RungS3)
			g.r.step(c)
		case falcon.OrderCheckpoint:
			g.paid += g.overheads[falcon.RungS4]
			g.taken = append(g.taken, falcon.RungS4)
			_, a := g.r.p.incidents.findAction(func(a *falcon.Action) bool {
				return a.OrderID == o.ID
			})
			g.job.Epoch, g.job.Placement, g.slow = 2, a.Placement, nil
			g.job.MicroBatches = slices.Repeat([]int32{8}, g.job.Layout.DP)
			g.r.step(c, Left{Order: o.ID})
			g.r.step(g.job, Launched{Generation: g.r.p.exec.generation})
		}
	}
}

// optimum is the best choice in hindsight for a fault of so many iterations:
// nothing, or one rung from the start.
func (g *grid) optimum(n float64) float64 {
	m := g.model
	even := slices.Repeat([]int32{8}, g.job.Layout.DP)
	best := (m.Iteration(g.job.Placement, even).IterationMs - gridHealthy) * n
	split, err := topology.Search(topology.Problem{
		Model:        m,
		Now:          g.job.Placement,
		MicroBatches: even,
	})
	if err == nil {
		best = min(
			best,
			g.overheads[falcon.RungS3]+(split.AfterSplitMs-gridHealthy)*n,
			g.overheads[falcon.RungS2]+(split.BeforeSplitMs-gridHealthy)*n,
		)
	} else {
		b := g.r.p.plans.solveSplit(m.Curves(g.job.Placement, int(totalOf(even))))
		best = min(best, g.overheads[falcon.RungS2]+(b.makespanMs+m.RestMs-gridHealthy)*n)
	}
	return min(best, g.overheads[falcon.RungS4])
}

// Whenever an adversary ends the fault, the ladder has cost at most twice the
// best choice in hindsight, and the overheads of the rungs below the last one
// taken (with one rung: twice). The planner acts at iteration boundaries and
// verifies each rung (here over one settled iteration) before it takes the
// next: that is the slack.
func TestLadderIsTwoCompetitive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGridJob(t)
		last := rapid.Int64Range(0, 300).Draw(t, "duration")
		g.begin()
		if g.r.p.profile.newest == nil || g.r.p.profile.newest.model == nil {
			t.Fatalf("no model: %v", g.r.p.profile.newest)
		}
		g.model = *g.r.p.profile.newest.model
		slowest, optimum, lost := g.ms()-gridHealthy, g.optimum(float64(last)), 0.0
		for ; g.at < last; g.at++ {
			g.obey()
			ms := g.ms() + g.extra
			g.extra = 0
			lost += ms - gridHealthy
			g.r.step(Iteration{Index: g.at, Ms: ms})
		}
		lower := 0.0
		for _, r := range g.taken[:max(0, len(g.taken)-1)] {
			lower += g.overheads[r]
		}
		slack := 3 * slowest * float64(1+len(g.taken))
		if got := lost + g.paid; got > 2*optimum+lower+slack+1e-6 {
			t.Fatalf("paid %.1f, optimum %.1f, lower rungs %.1f, slack %.1f, taken %v of %v, loss %.1f: %q",
				got, optimum, lower, slack, g.taken, g.overheads, slowest, g.r.notes)
		}
		if len(g.taken) > 3 {
			t.Fatalf("took %v", g.taken)
		}
	})
}

// Whatever incidents overlap, and however late they are heard of, an
// iteration's loss is charged once in all.
func TestSharedLossIsChargedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(Config{})
		r.step(fourReplicas(1, 8, 8, 8, 8), SetPolicy{falcon.Policy{Mode: falcon.ModeObserve}})
		want := 0.0
		type fault struct {
			falcon.Incident
			announced int64
		}
		var faults []fault
		for i := range rapid.IntRange(1, 4).Draw(t, "incidents") {
			v := gpuIncident(
				fmt.Sprintf("INC-%04d", i+1),
				falcon.Rank(i),
				rapid.Int64Range(5, 60).Draw(t, "onset"),
			)
			faults = append(faults, fault{
				v,
				v.OnsetIteration + rapid.Int64Range(0, 10).Draw(t, "heard of after"),
			})
		}
		// the detector tells of an incident's relief after it has told of the incident
		ends := rapid.Int64Range(71, 90).Draw(t, "first ends")
		for i := range int64(100) {
			ms, lasts := 80.0, false
			for k, f := range faults {
				if i >= f.OnsetIteration && (k > 0 || i < ends) {
					ms += rapid.Float64Range(1, 100).Draw(t, "loss")
					lasts = true
				}
			}
			if lasts {
				want += ms - 80
			}
			r.step(Iteration{Index: i, Ms: ms})
			for k, f := range faults {
				if i == f.announced {
					r.step(Incident{f.Incident})
				}
				if k == 0 && i == ends-1 {
					r.step(relieved(f.Incident, ends))
				}
			}
		}
		got := 0.0
		for _, f := range faults {
			l, _ := r.p.Ladder(f.ID)
			got += l.ImpactMs
		}
		if math.Abs(got-want) > 1e-6*want {
			t.Fatalf("charged %.3f ms, lost %.3f ms: %+v", got, want, faults)
		}
	})
}

// The second fault is charged what it adds: the first keeps its own pace.
func TestLaterFaultIsChargedWhatItAdds(t *testing.T) {
	r := newRig(Config{})
	r.step(fourReplicas(1, 8, 8, 8, 8), SetPolicy{falcon.Policy{Mode: falcon.ModeObserve}})
	r.iterations(0, 9, 80)
	r.iterations(10, 29, 100)
	r.step(Incident{gpuIncident("INC-0001", 1, 10)})
	r.iterations(30, 39, 150)
	r.step(Incident{gpuIncident("INC-0002", 2, 30)})
	r.iterations(40, 49, 150)
	a, _ := r.p.Ladder("INC-0001")
	b, _ := r.p.Ladder("INC-0002")
	if math.Abs(a.ImpactMs-(20*20+20*20)) > 1e-6 || math.Abs(b.ImpactMs-20*50) > 1e-6 {
		t.Errorf("charged %.1f and %.1f, want 800 and 1000", a.ImpactMs, b.ImpactMs)
	}
}

// A placement that another open fault needs stays when its own fault clears,
// and goes with that one.
func TestPlacementStaysWhileAnotherFaultNeedsIt(t *testing.T) {
	sc := newScript(t)
	said := func(cmd string) string { return fmt.Sprint(sc.play(cmd)) }
	said("job epoch=1 tp=1 dp=2 pp=2 m=8,8 per=1")
	said("policy mode=auto cap=S3")
	said("iterations from=30 to=39 ms=110")
	said("iterations from=40 to=47 ms=180")
	one := "incident id=INC-0001 onset=40 healthy=110 slow=180 cause=network_congestion links=n0-n1 "
	two := "incident id=INC-0002 onset=40 healthy=110 slow=180 cause=network_congestion links=n2-n3 "
	said(one + "state=located relieved=-1")
	said("profile id=INC-0001 self=10 dp=100 pp=1 mbs=10000 links=n0-n1:8,n2-n3:8")
	said(two + "state=located relieved=-1")
	said("profile id=INC-0002 self=10 dp=100 pp=1 mbs=10000 links=n0-n1:8,n2-n3:8")
	if len(sc.actions) == 0 || sc.actions[0].Rung != falcon.RungS3 {
		t.Fatalf("no placement: %+v", sc.actions)
	}
	said("commit order=1 at=50 status=0")
	said("iterations from=50 to=60 ms=115")
	said(one + "state=relieved relieved=61")
	if sc.orders != 1 {
		t.Fatalf("put back although INC-0002 needs it: %+v", sc.actions)
	}
	said(two + "state=relieved relieved=70")
	said("iterations from=61 to=100 ms=115") // slower than the 110 ms of before
	if sc.orders != 2 {
		t.Errorf("not put back: %+v", sc.actions)
	}
}
