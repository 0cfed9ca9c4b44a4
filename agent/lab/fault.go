package lab

import (
	"fmt"
	"strconv"

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
	Kind           string   `json:"kind"`            // gpu, link, cpu, work
	Stage          *int     `json:"stage,omitempty"` // whose work changed; absent: all
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

// before makes the silicon fit iteration next, the one about to run. What ends
// is taken back first, so that a fault which takes over from another on the
// same part is not undone with it; of two at once the later in the list wins.
func (f *faults) before(next int64) {
	changed := false
	for i, e := range f.sc.Events {
		if f.active[i] != off && !e.holds(next) {
			f.apply(e, false)
			f.injected[f.active[i]].LastIteration = next - 1
			f.active[i] = off
			changed = true
		}
	}
	for i, e := range f.sc.Events {
		if f.active[i] == off && e.holds(next) {
			f.active[i] = len(f.injected)
			f.injected = append(f.injected, f.truth(e, next))
			changed = true
		}
	}
	if changed {
		f.enforce()
	}
}

func (e Event) holds(iteration int64) bool {
	return iteration >= e.AtIteration && (e.UntilIteration == 0 || iteration < e.UntilIteration)
}

func (f *faults) enforce() {
	for i, e := range f.sc.Events {
		if f.active[i] != off {
			f.apply(e, true)
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
		a, b, ok := f.sc.ends(e.Link)
		if ok { // checked when the scenario was read
			f.hw.setBandwidth(a, b, val(e.Bandwidth))
		}
	case e.CPU != "":
		n, _ := f.sc.nodeIndex(falcon.Node(e.CPU))
		for g := range f.sc.gpusPerNode() {
			f.hw.setHostShare(n, g, val(e.Share))
		}
	case e.Stage != nil:
		f.setWork(func(c falcon.Coord) bool { return c.PP == *e.Stage }, val(e.Load))
	default:
		f.setWork(func(falcon.Coord) bool { return true }, val(e.All))
	}
}

// setWork makes the job's own work v times the usual on the ranks chosen.
func (f *faults) setWork(chosen func(falcon.Coord) bool, v float64) {
	l := f.sc.Layout.Layout()
	for r, d := range f.sc.Placement() {
		if chosen(l.Coord(falcon.Rank(r))) {
			n, _ := f.sc.nodeIndex(d.Node())
			f.hw.setLoad(n, d.Index(), v)
		}
	}
}

// ends are the indexes of a link's nodes.
func (s Scenario) ends(link string) (a, b int, ok bool) {
	l, err := falcon.ParseLink(link)
	if err != nil {
		return 0, 0, false
	}
	a, okA := s.nodeIndex(l.A)
	b, okB := s.nodeIndex(l.B)
	return a, b, okA && okB
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
	case e.Stage != nil:
		in.Kind, in.Stage = "work", e.Stage
	default:
		in.Kind = "work"
	}
	return in
}

// end gives the newest event like e its last iteration.
func (f *faults) end(e Event, until int64) {
	for i := len(f.sc.Events) - 1; i >= 0; i-- {
		have := f.sc.Events[i]
		if have.UntilIteration == 0 && have.target() == e.target() {
			f.sc.Events[i].UntilIteration = max(until, have.AtIteration+1)
			return
		}
	}
}

// inForce names the faults that hold now; a new slice each time, for it is
// handed to other goroutines.
func (f *faults) inForce() []string {
	out := []string{}
	for i, e := range f.sc.Events {
		if f.active[i] != off {
			out = append(out, e.String())
		}
	}
	return out
}

// String is the fault in a few words.
func (e Event) String() string {
	switch {
	case e.GPU != "":
		return fmt.Sprintf("gpu %s clock %g", e.GPU, e.Clock)
	case e.Link != "":
		return fmt.Sprintf("link %s bandwidth %g", e.Link, e.Bandwidth)
	case e.CPU != "":
		return fmt.Sprintf("cpu %s share %g", e.CPU, e.Share)
	case e.Stage != nil:
		return fmt.Sprintf("stage %d load %g", *e.Stage, e.Load)
	}
	return fmt.Sprintf("work of all ranks times %g", e.All)
}

// target names what an event hits.
func (e Event) target() string {
	if e.Stage != nil {
		return "stage " + strconv.Itoa(*e.Stage)
	}
	return e.GPU + e.Link + e.CPU
}
