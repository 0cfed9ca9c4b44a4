package lab

import (
	"slices"

	"github.com/failslow/falcon"
)

// faults applies the scenario's events to the silicon. Owned by the lab's loop.
type faults struct {
	sc       Scenario
	hw       *silicon
	place    falcon.Placement // device of each rank, now
	events   []*occurrence
	injected []Injected
}

// occurrence is one event on its way: from and until are its iterations as
// known by now, until 0 = to the end.
type occurrence struct {
	Event
	from, until int64
	lasts       int64 // iterations, while its end is held; 0 = it is not
	waits       bool  // for an action of its rung
	done        bool  // a death that has been dealt
	thawed      bool  // a freeze that has been taken back
	truth       int   // index into injected while in force, else off
}

const off = -1

// Injected is the truth about one fault, for the report.
type Injected struct {
	Kind           string   `json:"kind"`            // gpu, link, cpu, work, data, lengths
	Stage          *int     `json:"stage,omitempty"` // whose work changed; absent: all
	Rank           *int     `json:"rank,omitempty"`  // whose data come late
	Devices        []string `json:"devices"`
	Links          []string `json:"links"`
	FirstIteration int64    `json:"first_iteration"`
	LastIteration  int64    `json:"last_iteration"`
	OnAction       string   `json:"on_action,omitempty"` // it held while an action of this rung did
}

func newFaults(sc Scenario, hw *silicon) *faults {
	f := &faults{sc: sc, hw: hw, place: sc.Placement()}
	for _, e := range sc.Events {
		f.addEvent(e)
	}
	return f
}

// addEvent takes an event over; an injected one starts at the next iteration.
func (f *faults) addEvent(e Event) {
	f.events = append(f.events, &occurrence{
		Event: e,
		from:  e.AtIteration,
		until: e.UntilIteration,
		waits: e.OnAction != "",
		truth: off,
	})
}

func (o *occurrence) holdsAt(iteration int64) bool {
	return !o.endsProcesses() &&
		o.Stall == "" &&
		!o.waits &&
		iteration >= o.from &&
		(o.until == 0 || iteration < o.until)
}

// applyBefore makes the silicon fit iteration next, the one about to run. What ends
// is taken back first, so that a fault which takes over from another on the
// same part is not undone with it; of two at once the later in the list wins.
func (f *faults) applyBefore(next int64) {
	changed := false
	for _, o := range f.events {
		if o.truth != off && !o.holdsAt(next) {
			f.applyEvent(o.Event, false)
			f.injected[o.truth].LastIteration = next - 1
			o.truth = off
			changed = true
		}
	}
	for _, o := range f.events {
		if o.truth == off && o.holdsAt(next) {
			o.truth = len(f.injected)
			f.injected = append(f.injected, f.injectedTruth(o.Event, next))
			changed = true
		}
	}
	if changed {
		f.setSilicon()
	}
}

// onActionApplied notes an order of this kind that holds from iteration from on: it
// begins what waits for such an action, and ends what held with the one before.
func (f *faults) onActionApplied(kind falcon.OrderKind, from int64) {
	for _, o := range f.events {
		switch {
		case rungOrder(falcon.Rung(o.OnAction)) != kind || kind == "":
		case !o.waits:
			if o.from < from && (o.until == 0 || o.until > from) {
				o.until = from
			}
		case from >= o.AtIteration:
			o.waits, o.from = false, from
		}
	}
}

// setPlacement notes where the ranks are: the work of a stage goes with its ranks.
func (f *faults) setPlacement(p falcon.Placement) {
	if slices.Equal(p, f.place) {
		return
	}
	f.eachInForce(func(o *occurrence) { f.applyEvent(o.Event, false) })
	f.place = p
	f.setSilicon()
}

// eachInForce calls do for what is in force.
func (f *faults) eachInForce(do func(*occurrence)) {
	for _, o := range f.events {
		if o.truth != off {
			do(o)
		}
	}
}

func (f *faults) setSilicon() {
	f.eachInForce(func(o *occurrence) { f.applyEvent(o.Event, true) })
}

func (f *faults) applyEvent(e Event, on bool) {
	val := func(v float64) float64 {
		if on {
			return v
		}
		return 1
	}
	switch {
	case e.isOwnWork(): // the trainers read of it
	case e.GPU != "":
		d := falcon.Device(e.GPU)
		n, _ := f.sc.nodeIndex(d.Node())
		f.hw.throttleGPU(n, d.Index(), val(e.Clock))
	case e.Link == everyLink:
		f.everyLink(val(e.Bandwidth))
	case e.Link != "":
		a, b, ok := f.sc.linkEnds(e.Link)
		if ok { // checked when the scenario was read
			f.hw.setBandwidth(a, b, val(e.Bandwidth))
		}
	case e.CPU != "":
		n, _ := f.sc.nodeIndex(falcon.Node(e.CPU))
		for g := range f.sc.gpusPerNode() {
			f.hw.setHostShare(n, g, val(e.Share))
		}
	case e.Stage != nil:
		f.stageWork(*e.Stage, val(e.Load))
	default:
		f.everyWork(val(e.All))
	}
}

func (f *faults) everyLink(share float64) {
	for a := range f.sc.nodeCount() {
		for b := range a {
			f.hw.setBandwidth(a, b, share)
		}
	}
}

// stageWork makes the job's own work on one stage v times the usual.
func (f *faults) stageWork(stage int, v float64) {
	l := f.sc.Layout.Layout()
	for r, d := range f.place {
		if l.Coord(falcon.Rank(r)).PP == stage {
			n, _ := f.sc.nodeIndex(d.Node())
			f.hw.setNodeLoad(n, d.Index(), v)
		}
	}
}

// everyWork makes all of the job's work v times the usual, wherever it runs.
func (f *faults) everyWork(v float64) {
	for n := range f.sc.nodeCount() {
		for g := range f.sc.gpusPerNode() {
			f.hw.setNodeLoad(n, g, v)
		}
	}
}

// linkEnds are the indexes of a link's nodes.
func (s Scenario) linkEnds(link string) (a, b int, ok bool) {
	l, err := falcon.ParseLink(link)
	if err != nil {
		return 0, 0, false
	}
	a, okA := s.nodeIndex(l.A)
	b, okB := s.nodeIndex(l.B)
	return a, b, okA && okB
}

func (f *faults) injectedTruth(e Event, first int64) Injected {
	in := Injected{
		Devices:        []string{},
		Links:          []string{},
		FirstIteration: first,
		LastIteration:  int64(f.sc.Iterations) - 1,
		OnAction:       e.OnAction,
	}
	switch {
	case e.GPU != "":
		in.Kind = "gpu"
		in.Devices = []string{e.GPU}
	case e.Link != "":
		in.Kind = "link"
		in.Links = []string{e.Link}
	case e.CPU != "":
		in.Kind = "cpu"
		for g := range f.sc.gpusPerNode() {
			in.Devices = append(in.Devices, string(falcon.NewDevice(falcon.Node(e.CPU), g)))
		}
	case e.Stage != nil:
		in.Kind = "work"
		in.Stage = e.Stage
	case e.Data != "":
		v, _ := f.sc.parseVictim(e.Data) // checked when the scenario was read
		r := int(v.rank)
		in.Kind = "data"
		in.Rank = &r
	case e.Lengths != 0:
		in.Kind = "lengths"
	default:
		in.Kind = "work"
	}
	return in
}

// endEvent gives the newest event like e its last iteration.
func (f *faults) endEvent(e Event, until int64) {
	for _, o := range slices.Backward(f.events) {
		if o.until == 0 && o.targetName() == e.targetName() {
			o.until = max(until, o.from+1)
			return
		}
	}
}

// namesInForce names the faults that hold now; a new slice each time, for it is
// handed to other goroutines.
func (f *faults) namesInForce() []string {
	out := []string{}
	f.eachInForce(func(o *occurrence) { out = append(out, o.String()) })
	return out
}
