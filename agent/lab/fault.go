package lab

import (
	"github.com/failslow/falcon"
)

// faults applies the scenario's events to the silicon. Owned by the lab's loop.
type faults struct {
	sc       Scenario
	hw       *silicon
	injected []Injected
	active   []int // index into injected, by event; off while it is not in force
}

const off = -1

// Injected is the truth about one fault, for the report.
type Injected struct {
	Kind           string   `json:"kind"` // gpu, link, cpu, work
	Devices        []string `json:"devices"`
	Links          []string `json:"links"`
	FirstIteration int64    `json:"first_iteration"`
	LastIteration  int64    `json:"last_iteration"`
}

func newFaults(sc Scenario, hw *silicon) *faults {
	f := &faults{sc: sc, hw: hw}
	for range sc.Events {
		f.active = append(f.active, off)
	}
	return f
}

// add appends an injected event, which starts at the next iteration.
func (f *faults) add(e Event) {
	f.sc.Events = append(f.sc.Events, e)
	f.active = append(f.active, off)
}

// before makes the silicon fit iteration next, the one about to run.
func (f *faults) before(next int64) {
	for i, e := range f.sc.Events {
		want := next >= e.AtIteration && (e.UntilIteration == 0 || next < e.UntilIteration)
		if want == (f.active[i] != off) {
			continue
		}
		f.apply(e, want)
		if want {
			f.active[i] = len(f.injected)
			f.injected = append(f.injected, f.truth(e, next))
		} else {
			f.injected[f.active[i]].LastIteration = next - 1
			f.active[i] = off
		}
	}
}

func (f *faults) apply(e Event, on bool) {
	val := func(v float64) float64 {
		if on {
			return v
		}
		return 1
	}
	switch {
	case e.GPU != "":
		d := falcon.Device(e.GPU)
		n, _ := f.sc.nodeIndex(d.Node())
		f.hw.throttle(n, d.Index(), val(e.Clock))
	case e.Link != "":
		l, err := falcon.ParseLink(e.Link)
		if err != nil {
			return // checked when the scenario was read
		}
		a, _ := f.sc.nodeIndex(l.A)
		b, _ := f.sc.nodeIndex(l.B)
		f.hw.setBandwidth(a, b, val(e.Bandwidth))
	case e.CPU != "":
		n, _ := f.sc.nodeIndex(falcon.Node(e.CPU))
		for g := range f.sc.gpusPerNode() {
			f.hw.setHostShare(n, g, val(e.Share))
		}
	default:
		for n := range f.sc.Nodes {
			for g := range f.sc.gpusPerNode() {
				f.hw.setLoad(n, g, val(e.All))
			}
		}
	}
}

func (f *faults) truth(e Event, first int64) Injected {
	in := Injected{Devices: []string{}, Links: []string{}, FirstIteration: first, LastIteration: int64(f.sc.Iterations) - 1}
	switch {
	case e.GPU != "":
		in.Kind, in.Devices = "gpu", []string{e.GPU}
	case e.Link != "":
		in.Kind, in.Links = "link", []string{e.Link}
	case e.CPU != "":
		in.Kind = "cpu"
		for g := range f.sc.gpusPerNode() {
			in.Devices = append(in.Devices, string(falcon.NewDevice(falcon.Node(e.CPU), g)))
		}
	default:
		in.Kind = "work"
	}
	return in
}

// end gives the newest event like e its last iteration.
func (f *faults) end(e Event, until int64) {
	for i := len(f.sc.Events) - 1; i >= 0; i-- {
		have := f.sc.Events[i]
		if have.UntilIteration == 0 && have.GPU == e.GPU && have.Link == e.Link && have.CPU == e.CPU && have.All == e.All {
			f.sc.Events[i].UntilIteration = max(until, have.AtIteration+1)
			return
		}
	}
}
