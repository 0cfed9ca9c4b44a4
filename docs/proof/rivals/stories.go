package rivals

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/jobtest"
)

// Kinds of stories: what happens to a job.
const (
	SlowGPU    = "slow GPU"     // at 0.4 to 0.7 of its clock
	WeakGPU    = "GPU at 0.8"   // at 0.75 to 0.83
	SlowLink   = "slow link"    // at 0.08 to 0.2 of its bandwidth
	BusyCPU    = "busy CPU"     // a node's hosts get 4 to 8 % of their CPU
	Several    = "GPU and link" // on different nodes
	Undamaged  = "healthy"
	Lengths    = "uneven lengths" // sequences of different length in every batch
	MoreWork   = "more work"      // all passes take 1.3 to 2 times as long
	lastBefore = 350              // greatest first iteration of a fault
	lasts      = 500              // iterations of a fault
)

// Kinds lists them, those with a culprit first.
func Kinds() []string {
	return []string{SlowGPU, WeakGPU, SlowLink, BusyCPU, Several, Undamaged, Lengths, MoreWork}
}

// Story is one job of ranks and what happens to it. The job is an emulation
// (detect/jobtest): a simulation of hosts, streams and communication.
type Story struct {
	Kind   string
	Layout falcon.Layout
	Nodes  int
	Seed   uint64
	Meter  func(do func()) // runs what the detector itself does, when set

	job    *jobtest.Job
	rng    *rand.Rand
	From   int               // first iteration of the fault, or of the change
	To     int               // iterations in all
	Faults []map[string]bool // of each fault the names that are right: devices, nodes, links
}

// layouts are those of the stories, on nodes of two to four GPUs.
var layouts = []struct {
	layout falcon.Layout
	nodes  int
}{
	{falcon.Layout{TP: 1, DP: 8, PP: 1}, 4},
	{falcon.Layout{TP: 1, DP: 4, PP: 2}, 4},
	{falcon.Layout{TP: 2, DP: 4, PP: 1}, 4},
	{falcon.Layout{TP: 1, DP: 8, PP: 2}, 8},
	{falcon.Layout{TP: 2, DP: 4, PP: 2}, 4},
}

// NewStory is the story of a number; each kind meets each layout.
func NewStory(kind string, number, seed uint64) *Story {
	l := layouts[number%uint64(len(layouts))]
	s := &Story{
		Kind:   kind,
		Layout: l.layout,
		Nodes:  l.nodes,
		Seed:   seed<<32 + number<<8 + uint64(slices.Index(Kinds(), kind)),
	}
	s.reset()
	s.From = 150 + s.rng.IntN(lastBefore-150)
	s.To = s.From + lasts
	return s
}

// scaled is by how much longer all times are than jobtest's: iterations take 0.6 to 1.5 s.
const scaled = 10

// reset begins the story again, with the same numbers.
func (s *Story) reset() {
	s.rng = rand.New(rand.NewPCG(s.Seed, 15))
	j := jobtest.New(s.Layout, s.Nodes, 4+s.rng.IntN(5), s.Seed)
	j.ForwardMs = scaled * j.ForwardMs
	j.DPMs = scaled * j.DPMs
	j.PPMs = scaled * j.PPMs
	j.TPMs = scaled * j.TPMs
	j.LaunchMs = scaled * j.LaunchMs
	j.Noise, j.Hiccup = 0.005+0.015*s.rng.Float64(), 0.05*s.rng.Float64()
	s.job, s.Faults = j, nil
	if s.Kind == Lengths {
		j.Lengths = 0.3
	}
}

// beginFault begins the fault, or the change of work.
func (s *Story) beginFault() {
	rng := rand.New(rand.NewPCG(s.Seed, 16))
	d := s.job.Placement[rng.IntN(len(s.job.Placement))]
	switch s.Kind {
	case SlowGPU, Several:
		s.slowGPU(d, 0.4+0.3*rng.Float64())
	case WeakGPU:
		s.slowGPU(d, 0.75+0.08*rng.Float64())
	case BusyCPU:
		s.job.Share[d.Node()] = 0.04 + 0.04*rng.Float64()
		s.addFault(string(d.Node()))
		for _, q := range s.job.Placement {
			if q.Node() == d.Node() {
				s.Faults[0][string(q)] = true
			}
		}
	case MoreWork:
		f := 1.3 + 0.7*rng.Float64()
		for range s.Layout.PP {
			s.job.Load = append(s.job.Load, f)
		}
	}
	if s.Kind == SlowLink || s.Kind == Several {
		s.slowLink(rng, d.Node())
	}
}

func (s *Story) slowGPU(d falcon.Device, clock float64) {
	s.job.Clock[d] = clock
	s.addFault(string(d), string(d.Node()))
}

// slowLink slows a link that the job uses: of neighbours in a data-parallel group.
func (s *Story) slowLink(rng *rand.Rand, apart falcon.Node) {
	var used []falcon.Link
	for _, g := range s.Layout.Groups(falcon.DimDP) {
		for i, r := range g.Ranks {
			a, b := s.job.Placement[r].Node(), s.job.Placement[g.Ranks[(i+1)%len(g.Ranks)]].Node()
			if a != b && (s.Kind != Several || a != apart && b != apart) {
				used = append(used, falcon.NewLink(a, b))
			}
		}
	}
	if len(used) == 0 {
		return
	}
	l := used[rng.IntN(len(used))]
	s.job.Link[l] = 0.08 + 0.12*rng.Float64()
	s.addFault(l.String(), string(l.A), string(l.B))
}

// addFault adds a fault with the names that are right for it.
func (s *Story) addFault(names ...string) {
	fault := map[string]bool{}
	for _, name := range names {
		fault[name] = true
	}
	s.Faults = append(s.Faults, fault)
}

// Seen is one iteration of a job as tracers and monitors see it.
type Seen struct {
	Ms       float64
	Kernels  []jobtest.Kernels // by rank
	Machines [][]float64       // by metric and machine
}

// Metrics of machines, in the order of Minder's priority.
const (
	marks    = iota // congestion marks of the machine's port
	cpuShare        // of the iteration in which the hosts launch kernels
	tensor          // of the iteration in which the GPUs compute
	machineMetrics
)

// Play plays the story and hands out each iteration as monitors see it.
func (s *Story) Play(each func(iteration int, seen *Seen)) {
	s.reset()
	rng := rand.New(rand.NewPCG(s.Seed, 17)) // of the monitors
	for i := range s.To {
		if i == s.From {
			s.beginFault()
		}
		seen := &Seen{Ms: s.job.Samples(1)[0].Ms, Kernels: s.job.Kernels()}
		seen.Machines = s.machines(rng, seen)
		each(i, seen)
	}
}

// machines are the metrics of the nodes, each read with an error of 1 %.
func (s *Story) machines(rng *rand.Rand, seen *Seen) [][]float64 {
	out := make([][]float64, machineMetrics)
	for m := range out {
		out[m] = make([]float64, s.Nodes)
	}
	per := float64(len(s.job.Placement) / s.Nodes)
	for r, d := range s.job.Placement {
		k, n := seen.Kernels[r], s.node(d.Node())
		out[cpuShare][n] += k.LaunchMs / seen.Ms / per
		out[tensor][n] += (k.ForwardMs + k.BackwardMs) / seen.Ms / per
	}
	for n := range s.Nodes {
		out[marks][n] = s.marked(falcon.Node(fmt.Sprint("n", n)))
		for m := range out {
			out[m][n] *= 1 + 0.01*rng.NormFloat64()
		}
	}
	return out
}

// node is the number of a node.
func (s *Story) node(n falcon.Node) int {
	nodes := s.job.Placement.Nodes()
	return slices.Index(nodes, n)
}

// Congestion marks of a port in a reading.
const (
	marksHealthy   = 1
	marksCongested = 300
)

// marked is how many marks a node's port gets in a reading.
func (s *Story) marked(n falcon.Node) float64 {
	sum := float64(marksHealthy)
	for l, f := range s.job.Link {
		if f < 1 && (l.A == n || l.B == n) {
			sum += marksCongested
		}
	}
	return sum
}
