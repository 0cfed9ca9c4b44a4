package detect

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

// world plays a synthetic job against a machine: samples of every iteration,
// counters about once a second, answers to profile requests.
type world struct {
	job     *jobtest.Job
	m       *Machine
	now     time.Time
	epoch   uint64
	outside bool // the next epochs are begun by others than Falcon
	out     strings.Builder
	request *ProfileRequest
	ask     *falcon.ValidationAsk
	all     []falcon.Incident // newest state of every incident, in order of id

	counters bool
	mute     bool // readings show no clock that fell
	nics     bool
	idle     bool        // slow links carry nothing: their ports see nothing
	refuse   int         // windows still to be refused
	tests    string      // answer to asks: "on", "off" (none comes), "refused", "barred" (not allowed)
	tested   int         // validations answered
	missing  falcon.Node // sends no profile
	silent   falcon.Node // its agent can't be heard: no samples, profiles, readings or tests
	spike    float64     // factor on the next iteration's time
	cov      float64     // deviation of the whole job's iterations, as of the weather
	weather  *rand.Rand

	onProfile func([]falcon.RankProfile) // sees each window; nil = nobody
	onAsk     func(falcon.ValidationAsk) // sees what is to be tested; nil = nobody

	given    func(Input) Input // what becomes of an input before the machine gets it; nil = nothing
	did      func(Ready)       // sees what the machine wants, where set
	watch    func(Input)       // is called before each input, where set
	after    func()            // and after it
	read     time.Time
	declared []int // micro-batches, as described
	congest  map[falcon.Node]uint64
	thermal  map[falcon.Device]uint64
}

func newWorld(l falcon.Layout, nodes, micro int, seed uint64) *world {
	w := &world{
		job:      jobtest.New(l, nodes, micro, seed),
		m:        New(Config{}),
		now:      time.Unix(1000, 0),
		counters: true,
		thermal:  map[falcon.Device]uint64{},
		congest:  map[falcon.Node]uint64{},
		epoch:    1,
		tests:    "on",
	}
	w.describe()
	return w
}

func (w *world) describe() {
	w.declared = slices.Clone(w.job.MicroBatches)
	micro := make([]int32, len(w.job.MicroBatches))
	for i, m := range w.job.MicroBatches {
		micro[i] = int32(m)
	}
	w.step(Job{
		Epoch:        w.epoch,
		Layout:       w.job.Layout,
		Placement:    w.job.Placement,
		Comms:        w.job.Comms,
		MicroBatches: micro,
		Emulated:     true,
		Outside:      w.outside,
	})
}

// step feeds one input and takes in what it led to.
func (w *world) step(in Input) {
	if w.watch != nil {
		w.watch(in)
	}
	if w.given != nil {
		in = w.given(in)
	}
	w.m.Step(w.now, in)
	if w.after != nil {
		w.after()
	}
	w.drain()
}

func (w *world) drain() {
	r := w.m.Ready()
	if w.did != nil {
		w.did(r)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&w.out, "%d %s: %s\n", n.Iteration, n.Kind, n.Text)
	}
	for _, inc := range r.Incidents {
		w.remember(inc)
		w.tell(inc)
	}
	for _, q := range r.Requests {
		fmt.Fprintf(&w.out, "request: %d iterations (%s)\n", q.Iterations, q.Why)
		w.request = &q
	}
	for _, a := range r.Asks {
		fmt.Fprintf(&w.out, "ask: gemm %v, rings %v, pairs %v (%s)\n",
			a.GEMM, a.Rings, a.Pairs, a.Why)
		w.ask = &a
		if w.onAsk != nil {
			w.onAsk(a)
		}
	}
	w.m.Advance()
	if r.Compare != nil {
		w.step(r.Compare.Run())
	}
}

func (w *world) remember(inc falcon.Incident) {
	i := slices.IndexFunc(w.all, func(o falcon.Incident) bool {
		return o.ID == inc.ID
	})
	if i < 0 {
		w.all = append(w.all, inc)
		return
	}
	w.all[i] = inc
}

func (w *world) tell(inc falcon.Incident) {
	v := inc.Verdict
	if b := inc.Before(); b != inc.HealthyMs {
		fmt.Fprintf(&w.out, "%s: %.0f ms before, healthy %.0f ms\n", inc.ID, b, inc.HealthyMs)
	}
	if inc.Times > 0 {
		fmt.Fprintf(&w.out, "%s: time %d, the first from iteration %d on\n",
			inc.ID, inc.Times, inc.FirstOnset)
	}
	fmt.Fprintf(&w.out,
		"%s %s: onset %d, detected %d, relieved %d, %s %v %v, ranks %v, severity %d, confidence %.2f\n",
		inc.ID, inc.State, inc.OnsetIteration, inc.DetectedIteration, inc.RelievedIteration,
		v.Cause, v.Devices, v.Links, v.Ranks, v.Severity, v.Confidence)
	if inc.State == falcon.IncidentLocated {
		for _, e := range v.Evidence {
			sign := "+"
			if e.Against {
				sign = "-"
			}
			fmt.Fprintf(&w.out, "  %s %s: %s\n", sign, e.Kind, e.Text)
		}
	}
}

// run plays n iterations; a requested window takes its iterations out of them.
func (w *world) run(n int) {
	for n > 0 {
		take := 1
		window := uint64(0)
		req := w.request
		if req != nil {
			take, window = req.Iterations, req.Window
		}
		w.request = nil
		n -= take
		held := w.validate()
		var samples []falcon.Sample
		var profiles []falcon.RankProfile
		if req != nil {
			samples, profiles = w.job.Iteration(take, window)
		} else {
			samples = w.job.Samples(take)
		}
		for i := range w.job.Layout.World() {
			samples[i].Ms += held
			samples[i].PausedMs += held
		}
		w.deliver(samples)
		if req != nil {
			w.answer(window, profiles)
		}
	}
}

// validate answers an ask at the iteration boundary and says how long the job
// was held, ms.
func (w *world) validate() float64 {
	ask := w.ask
	w.ask = nil
	if ask == nil || w.tests == "off" {
		return 0
	}
	w.tested++
	v := w.job.Validate(*ask)
	held := 350.0
	if w.silent != "" {
		v = falcon.Validation{
			Ask:    *ask,
			State:  falcon.ValidationRefused,
			Reason: "the agent of node " + string(w.silent) + " is away",
		}
		held = 0
	}
	if w.tests == "refused" {
		v = falcon.Validation{
			Ask:    *ask,
			State:  falcon.ValidationRefused,
			Reason: "no consistent boundary: rank 3 is not hooked",
		}
		held = 0
	}
	if w.tests == "barred" {
		v = falcon.Validation{
			Ask:    *ask,
			State:  falcon.ValidationRefused,
			Bar:    falcon.BarPolicy,
			Reason: "tests wait for a person",
		}
		held = 0
	}
	v.ID = fmt.Sprintf("VAL-%04d", w.tested)
	w.now = w.now.Add(time.Duration(held * float64(time.Millisecond)))
	w.step(Validated{Validation: v})
	return held
}

// deliver feeds samples iteration by iteration, time going on with them.
func (w *world) deliver(samples []falcon.Sample) {
	world := w.job.Layout.World()
	for i := 0; i < len(samples); i += world {
		batch := samples[i : i+world]
		if w.spike > 0 {
			for k := range batch {
				batch[k].Ms *= w.spike
			}
			w.spike = 0
		}
		if w.cov > 0 {
			factor := 1 + w.cov*w.weather.NormFloat64()
			for k := range batch {
				batch[k].Ms *= factor
			}
		}
		w.now = w.now.Add(time.Duration(batch[0].Ms * float64(time.Millisecond)))
		w.probe(batch[0].Ms)
		w.step(Samples{Samples: w.heard(batch)})
	}
	w.m.Tick(w.now)
	w.drain()
}

// heard leaves out what a silent node would have sent.
func (w *world) heard(samples []falcon.Sample) []falcon.Sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s falcon.Sample) bool {
		return w.job.Placement[s.Rank].Node() == w.silent
	})
}

// answer feeds the nodes' parts of a window.
func (w *world) answer(window uint64, profiles []falcon.RankProfile) {
	if w.refuse > 0 {
		w.refuse--
		w.step(Profiled{Window: window, Refused: "rank 0 captures a graph"})
		w.now = w.now.Add(3 * time.Second)
		w.m.Tick(w.now)
		w.drain()
		return
	}
	if w.onProfile != nil {
		w.onProfile(profiles)
	}
	byNode := map[falcon.Node][]falcon.RankProfile{}
	var nodes []falcon.Node
	for _, p := range profiles {
		n := w.job.Placement[p.Rank].Node()
		if byNode[n] == nil {
			nodes = append(nodes, n)
		}
		byNode[n] = append(byNode[n], p)
	}
	for _, n := range nodes {
		if n != w.missing && n != w.silent {
			w.step(Profiled{Window: window, Profiles: byNode[n]})
		}
	}
	if w.missing != "" || w.silent != "" {
		w.now = w.now.Add(time.Minute)
		w.m.Tick(w.now)
		w.drain()
	}
}

// probe reads counters about once a second; throttle time grows while a clock
// is down.
func (w *world) probe(ms float64) {
	for d, c := range w.job.Clock {
		if c < 1 && !w.mute {
			w.thermal[d] += uint64(ms * 1e6)
		}
	}
	if !w.counters || w.now.Sub(w.read) < time.Second {
		return
	}
	w.read = w.now
	in := Readings{NICs: w.ports()}
	hosts := map[falcon.Node]bool{}
	for _, d := range w.job.Placement {
		if d.Node() == w.silent {
			continue
		}
		clock := uint32(1980)
		if c := w.job.Clock[d]; c > 0 && !w.mute {
			clock = uint32(1980 * c)
		}
		in.GPUs = append(in.GPUs, falcon.GPUReading{
			Device:        d,
			AtNs:          w.now.UnixNano(),
			SMClockMHz:    clock,
			MaxSMClockMHz: 1980,
			ThermalNs:     w.thermal[d],
			ProbeUs:       150,
		})
		if n := d.Node(); !hosts[n] {
			hosts[n] = true
			steal := 0.01
			if s := w.job.Share[n]; s > 0 {
				steal = 1 - s
			}
			in.Hosts = append(in.Hosts, falcon.HostReading{
				Node:       n,
				AtNs:       w.now.UnixNano(),
				StealShare: steal,
				Emulated:   true,
			})
		}
	}
	w.step(in)
}

// ports reads one port per node; marks grow at both ends of a slow link.
func (w *world) ports() []falcon.NICReading {
	for l, f := range w.job.Link {
		if f < 1 && !w.idle {
			w.congest[l.A] += 300
			w.congest[l.B] += 300
		}
	}
	var out []falcon.NICReading
	seen := map[falcon.Node]bool{}
	for _, d := range w.job.Placement {
		n := d.Node()
		if seen[n] || !w.nics || n == w.silent {
			continue
		}
		seen[n] = true
		w.congest[n]++
		out = append(out, falcon.NICReading{
			NIC:        falcon.NIC(string(n) + ".nic0"),
			AtNs:       w.now.UnixNano(),
			RateMbps:   400_000,
			Active:     true,
			CNPHandled: w.congest[n],
			Emulated:   true,
		})
	}
	return out
}

// act applies micro-batches from the next iteration on, as an action of an
// incident.
func (w *world) act(incident string, reverted bool, micro []int) {
	w.job.MicroBatches = micro
	in := Acted{
		Incident:  incident,
		Rung:      falcon.RungS2,
		Iteration: w.job.Next(),
		Reverted:  reverted,
	}
	for _, m := range micro {
		in.MicroBatches = append(in.MicroBatches, int32(m))
	}
	w.step(in)
}

// place swaps blocks of ranks from the next iteration on, as an action of an
// incident; the iteration before takes as long as the swap. The engine tells the
// new communicators after the action.
func (w *world) place(incident string, reverted bool, blocks []int32) {
	w.spike = 6
	w.run(1)
	w.job.Place(blocks)
	w.step(Acted{
		Incident:  incident,
		Rung:      falcon.RungS3,
		Iteration: w.job.Next(),
		Reverted:  reverted,
		Placement: w.job.Placement,
	})
	w.describe()
}

// block is the block of ranks that a node holds.
func (w *world) block(n falcon.Node) int {
	at := slices.IndexFunc(w.job.Placement, func(d falcon.Device) bool {
		return d.Node() == n
	})
	return at / (len(w.job.Placement) / len(w.m.job.desc.Placement.Nodes()))
}

// exchange puts a node in another's place, to be launched there.
func (w *world) exchange(out, in falcon.Node) {
	w.job.Placement = slices.Clone(w.job.Placement)
	for r, d := range w.job.Placement {
		if d.Node() == out {
			w.job.Placement[r] = falcon.NewDevice(in, d.Index())
		}
	}
}

// relaunch starts the job again on the devices that it is to have now, a few
// iterations back, as a new job epoch with even micro-batches.
func (w *world) relaunch(back int64) {
	total := 0
	for _, n := range w.job.MicroBatches {
		total += n
	}
	for i := range w.job.MicroBatches {
		w.job.MicroBatches[i] = total / len(w.job.MicroBatches)
	}
	w.job.Relaunch(w.job.Placement, w.job.Next()-back)
	w.epoch++
	w.request, w.ask = nil, nil
	w.describe()
}

// restart replaces the machine by a new one that is given what a journal
// keeps.
func (w *world) restart() {
	in := Restored{
		Incidents: w.m.Open(),
		Baseline:  w.m.Steady().BaselineMs,
		NextID:    len(w.all) + 1,
	}
	w.m = New(Config{})
	w.request = nil
	w.step(in)
	w.describe()
}

func (w *world) clearFaults() {
	clear(w.job.Clock)
	clear(w.job.Share)
	clear(w.job.Link)
	w.job.Load, w.job.Lengths = nil, 0
	clear(w.job.DataMs)
	w.job.SaveMs = 0
	w.job.Garbage = 0
	w.job.Evaluate = 0
	if w.job.Undeclared {
		copy(w.job.MicroBatches, w.declared)
	}
}
