package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect"
	"github.com/failslow/falcon/mitigate"
)

// Costs are what Falcon's own doing takes of the job: stated, not emulated.
type Costs struct {
	CommitAfter int     // iterations from an order to the boundary at which it takes force
	SplitMs     float64 // a new split (S2), once
	HoldMs      float64 // a validation holds the job for so long
	ControlMs   float64 // a swap (S3) beyond its copies: pause, votes, communicators
	StateMB     float64 // of one rank, dumped, exchanged and restored by a swap
	CopyMBs     float64 // device to host memory, and back
	ExpectS3Ms  float64 // what falcon.yaml says that a swap costs; 0 = nothing
}

// swap is how long a placement takes: each step on the slowest rank.
func (c Costs) swap(s Shape) falcon.Swap {
	copied := c.StateMB / c.CopyMBs * 1000
	return falcon.Swap{
		StepMs: [4]float64{c.ControlMs / 2, copied, c.StateMB / s.NICMBs * 1000, copied + c.ControlMs/2},
	}
}

func (c Costs) planner() mitigate.Config {
	if c.ExpectS3Ms == 0 {
		return mitigate.Config{}
	}
	return mitigate.Config{OverheadsMs: map[falcon.Rung]float64{falcon.RungS3: c.ExpectS3Ms}}
}

// Result is one run.
type Result struct {
	Iterations int
	Seconds    float64
	HeldMs     float64 // by validations and swaps
	Incidents  []falcon.Incident
	Actions    []falcon.Action
	Points     []Point // every iteration
	Notes      []string
}

// Point is one iteration of a run.
type Point struct {
	AtS, Ms   float64
	Faults    int     // present
	Split     []int32 // in force
	Placement falcon.Placement
}

// PerMinute is the throughput over the whole run, everything counted in.
func (r Result) PerMinute() float64 {
	return float64(r.Iterations) / r.Seconds * 60
}

// world is one run under way: the job, and the machines of production that
// watch and steer it, joined as the engine joins them.
type world struct {
	job       *Job
	trace     Trace
	costs     Costs
	det       *detect.Machine // nil = Falcon is off
	plan      *mitigate.Planner
	start     time.Time
	now       time.Time
	orders    []due
	ask       *falcon.ValidationAsk
	want      *detect.ProfileRequest
	win       *window
	probes    probes
	tests     int
	announced uint64               // profile window that the planner knows
	known     map[string][]float64 // by state: iterations played without Falcon, see play
	out       Result
}

// due is an order with the iteration that it holds from.
type due struct {
	order falcon.Order
	at    int64
}

// Run plays a job under a trace for runS seconds, with Falcon or without.
func Run(s Shape, t Trace, c Costs, seed uint64, runS float64, falconOn bool) Result {
	w := &world{
		job:   NewJob(s, rand.New(rand.NewPCG(seed, 64))),
		trace: t,
		costs: c,
		start: time.Unix(1_000_000, 0),
	}
	w.now = w.start
	if falconOn {
		w.det, w.plan = detect.New(detect.Config{}), mitigate.New(c.planner())
		w.plan.Step(w.now, mitigate.SetPolicy{Policy: falcon.Policy{
			Mode:  falcon.ModeAuto,
			Cap:   falcon.RungS3,
			Owner: "the emulation",
		}})
		w.describe()
	}
	for w.atS() < runS {
		w.iterate()
	}
	w.out.Seconds = w.atS()
	return w.out
}

func (w *world) atS() float64 {
	return w.now.Sub(w.start).Seconds()
}

func (w *world) describe() {
	w.describeToDetector()
	w.describeToPlanner()
	w.settle()
}

func (w *world) describeToDetector() {
	j := w.job
	w.det.Step(w.now, detect.Job{
		Epoch:        1,
		Layout:       j.Layout,
		Placement:    j.Placement,
		Comms:        j.Comms(),
		MicroBatches: slices.Clone(j.Split),
		Emulated:     true,
	})
}

func (w *world) describeToPlanner() {
	j := w.job
	w.plan.Step(w.now, mitigate.Job{
		Epoch:        1,
		Layout:       j.Layout,
		MicroBatches: slices.Clone(j.Split),
		GPUs:         len(j.Placement),
		Placement:    slices.Clone(j.Placement),
		Can: falcon.Can{
			Declared:   true,
			Park:       true,
			Split:      true,
			Place:      true,
			Checkpoint: true,
		},
	})
}

// iterate plays one iteration and lets the machines see it.
func (w *world) iterate() {
	active, _ := w.trace.At(w.atS())
	w.job.Disturb(active)
	held := w.carryOut() + w.validate()
	if w.want != nil && w.win == nil {
		w.win = w.job.newWindow(w.want.Window, w.want.Iterations)
	}
	p := w.play(active)
	w.now = w.now.Add(time.Duration((held + p.ms) * float64(time.Millisecond)))
	w.out.Iterations++
	w.out.HeldMs += held
	w.out.Points = append(w.out.Points, Point{w.atS(), p.ms, len(active), w.job.Split, w.job.Placement})
	if w.det == nil {
		return
	}
	index := w.job.next - 1
	samples := make([]falcon.Sample, w.job.Layout.World())
	for r := range samples {
		samples[r] = falcon.Sample{
			Rank:      falcon.Rank(r),
			Iteration: index,
			Ms:        p.ms + held,
			PausedMs:  held,
			Exact:     true,
		}
	}
	w.det.Step(w.now, detect.Samples{Samples: samples})
	w.det.Step(w.now, w.probes.read(w.job, w.now))
	w.plan.Step(w.now, mitigate.Iteration{Index: index, Ms: p.ms})
	w.settle()
	w.profiled(p)
	w.det.Tick(w.now)
	w.plan.Tick(w.now)
	w.settle()
}

// drawnAfter is how many iterations of one state of a job without a controller are
// played where transfers are flows; further ones are drawn among them.
const drawnAfter = 12

// play runs one iteration.
func (w *world) play(active []Fault) played {
	if w.det != nil || w.job.Flows == nil {
		return w.job.Play(w.win != nil)
	}
	key := fmt.Sprint(active)
	if len(w.known[key]) == drawnAfter {
		return played{ms: w.known[key][w.job.rng.IntN(drawnAfter)]}
	}
	p := w.job.Play(false)
	if w.known == nil {
		w.known = map[string][]float64{}
	}
	w.known[key] = append(w.known[key], p.ms)
	return p
}

// profiled adds the iteration to the window under way and hands it in when it
// is complete.
func (w *world) profiled(p played) {
	if w.win == nil || p.sent == nil {
		return
	}
	w.win.add(p)
	w.want.Iterations--
	if w.want.Iterations > 0 {
		return
	}
	done := w.win
	w.win, w.want = nil, nil
	w.det.Step(w.now, detect.Profiled{Window: done.id, Profiles: done.profiles})
	w.settle()
}

// validate runs the tests that were asked for at this boundary.
func (w *world) validate() (heldMs float64) {
	if w.ask == nil {
		return 0
	}
	ask := *w.ask
	w.ask = nil
	w.tests++
	v := w.job.Validate(ask)
	v.ID, v.PausedMs = fmt.Sprintf("VAL-%04d", w.tests), w.costs.HoldMs
	w.now = w.now.Add(time.Duration(w.costs.HoldMs * float64(time.Millisecond)))
	w.det.Step(w.now, detect.Validated{Validation: v})
	w.now = w.now.Add(-time.Duration(w.costs.HoldMs * float64(time.Millisecond)))
	w.settle()
	return w.costs.HoldMs
}

// carryOut puts the orders that are due into force and says how long the job
// stood still for them.
func (w *world) carryOut() (heldMs float64) {
	for len(w.orders) > 0 && w.orders[0].at <= w.job.next {
		o := w.orders[0].order
		w.orders = w.orders[1:]
		in := mitigate.Committed{Order: o.ID, Iteration: w.job.next}
		switch o.Kind {
		case falcon.OrderMicroBatches:
			w.job.Split, in.MicroBatches = slices.Clone(o.MicroBatches), slices.Clone(o.MicroBatches)
			heldMs += w.costs.SplitMs
		case falcon.OrderPlacement:
			swap, moved := w.costs.swap(w.job.Shape), w.move(o.Blocks)
			swap.MovedMB, in.Swap = float64(moved)*w.costs.StateMB, &swap
			for _, ms := range swap.StepMs {
				heldMs += ms
			}
		default:
			in.Status = 1
		}
		w.plan.Step(w.now, in)
		if o.Kind == falcon.OrderMicroBatches {
			w.describeToDetector()
		}
		w.describeToPlanner() // a placement reaches the detector as an action
		w.settle()
	}
	return heldMs
}

// move gives every block of ranks to the processes that take it over, and
// counts the ranks that moved.
func (w *world) move(blocks []int32) (moved int) {
	was := w.job.Placement
	size := len(was) / len(blocks)
	now := make(falcon.Placement, len(was))
	for r, d := range was {
		to := int(blocks[r/size])*size + r%size
		now[to] = d
		if to != r {
			moved++
		}
	}
	w.job.Move(now)
	return moved
}

// settle passes on what the machines want until they want nothing more.
func (w *world) settle() {
	if w.det == nil {
		return
	}
	for {
		d, p := w.det.Ready(), w.plan.Ready()
		if d.Empty() && p.Empty() && !w.measured() {
			return
		}
		w.det.Advance()
		w.plan.Advance()
		w.detected(d)
		w.planned(p)
	}
}

// measured passes a new profile on, as the engine does in the turn in which it comes.
func (w *world) measured() bool {
	id, from := w.det.Profiled()
	if id == w.announced {
		return false
	}
	w.announced = id
	for _, v := range w.out.Incidents {
		w.tellSpeeds(v)
	}
	w.plan.Step(w.now, mitigate.Measured{Begun: from})
	return true
}

func (w *world) detected(d detect.Ready) {
	for _, n := range d.Notes {
		w.note("detect/"+n.Kind, n.Text)
	}
	for _, v := range d.Incidents {
		w.keepIncident(v)
		w.plan.Step(w.now, mitigate.Incident{Incident: v})
		w.tellSpeeds(v)
	}
	for _, q := range d.Requests {
		w.want, w.win = &q, nil
	}
	for _, a := range d.Asks {
		w.ask = &a
	}
}

func (w *world) planned(p mitigate.Ready) {
	for _, n := range p.Notes {
		w.note("plan/"+n.Kind, n.Text)
	}
	for _, a := range p.Actions {
		if i := slices.IndexFunc(w.out.Actions, func(o falcon.Action) bool {
			return o.ID == a.ID
		}); i >= 0 {
			w.out.Actions[i] = a
		} else {
			w.out.Actions = append(w.out.Actions, a)
		}
	}
	for _, o := range p.Orders {
		w.orders = append(w.orders, due{o, w.job.next + int64(w.costs.CommitAfter)})
	}
	for _, a := range p.Acted {
		w.det.Step(w.now, detect.Acted(a))
	}
	if p.Look != "" {
		w.det.Step(w.now, detect.Look{Why: p.Look})
	}
}

func (w *world) note(kind, text string) {
	w.out.Notes = append(w.out.Notes, fmt.Sprintf("%.0f s, iteration %d: %s: %s",
		w.atS(), w.job.next, kind, text))
}

func (w *world) keepIncident(v falcon.Incident) {
	w.note("incident", fmt.Sprintf("%s %s onset %d detected %d relieved %d %s %v %v",
		v.ID, v.State, v.OnsetIteration, v.DetectedIteration, v.RelievedIteration, v.Verdict.Cause,
		v.Verdict.Devices, v.Verdict.Links))
	if i := slices.IndexFunc(w.out.Incidents, func(o falcon.Incident) bool {
		return o.ID == v.ID
	}); i >= 0 {
		w.out.Incidents[i] = v
		return
	}
	w.out.Incidents = append(w.out.Incidents, v)
}

// tellSpeeds has the newest profile for the planner, as far as an incident has
// use for it.
func (w *world) tellSpeeds(v falcon.Incident) {
	if speeds := w.det.Speeds(); v.State == falcon.IncidentLocated && len(speeds) > 0 {
		w.plan.Step(w.now, mitigate.Speeds{
			Incident: v.ID,
			SelfMs:   speeds,
			Profile:  w.det.Profile(),
		})
	}
}
