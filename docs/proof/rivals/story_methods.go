package rivals

import (
	"fmt"
	"slices"
)

// RankMethod is a rule that reads what ranks or machines do.
type RankMethod struct {
	Name    string
	Setting string
	Default float64
	Tries   []float64
	Input   string // what it reads
	// Watch returns who takes in the iterations of a job, and what was named in the end.
	Watch func(s *Story, setting float64) (take func(iteration int, seen *Seen), named func() []Named)
}

// Method is the method of a name.
func Method(name string) RankMethod {
	all := RankMethods()
	return all[slices.IndexFunc(all, func(m RankMethod) bool { return m.Name == name })]
}

// RankMethods are the rivals that read ranks or machines.
func RankMethods() []RankMethod {
	return []RankMethod{
		{
			nvrxName,
			"score below",
			NvrxThreshold,
			nvrxTries,
			"kernels and sections of every rank",
			watchNvrx(true),
		},
		{"NVRx, relative scores only", "score below", NvrxThreshold, nvrxTries, "the same", watchNvrx(false)},
		{
			megatronName,
			"least over greatest",
			DefaultStraggler().Below,
			[]float64{0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99},
			"forward passes of every rank",
			watchMegatron,
		},
		{
			minderName,
			"score above",
			DefaultMinder(1).Threshold,
			[]float64{2, 3, 5, 8, 12, 20, 40, 80},
			"marks, CPU and GPU use of every machine",
			watchMinder,
		},
	}
}

// Names of the methods that have own kinds of data.
const (
	nvrxName     = "NVRx"
	megatronName = "Megatron --log-straggler"
	minderName   = "Minder-like"
)

var nvrxTries = []float64{0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95}

// names collects culprits; one that is named again at once is named once.
type names struct {
	all     []Named
	present []string
}

// replace sets who is named at an iteration.
func (n *names) replace(iteration int, now []string) {
	for _, name := range now {
		if !slices.Contains(n.present, name) {
			n.all = append(n.all, Named{At: iteration, Name: name})
		}
	}
	n.present = now
}

func (n *names) list() []Named { return n.all }

// nvrxSeconds is the report interval of the Lightning callback.
const nvrxSeconds = 300

func watchNvrx(individual bool) func(*Story, float64) (func(int, *Seen), func() []Named) {
	return func(s *Story, setting float64) (func(int, *Seen), func() []Named) {
		gpus, sections := &Nvrx{}, &Nvrx{Sections: true}
		var out names
		kernels, launches := interval(s), interval(s)
		passed := 0.0
		return func(i int, seen *Seen) {
			for r, k := range seen.Kernels {
				kernels[r]["forward"] = append(kernels[r]["forward"], k.ForwardMs)
				kernels[r]["backward"] = append(kernels[r]["backward"], k.BackwardMs)
				launches[r]["forward"] = append(launches[r]["forward"], k.LaunchMs)
			}
			if passed += seen.Ms / 1000; passed < nvrxSeconds {
				return
			}
			slow := gpus.Report(kernels).Stragglers(setting, individual)
			slow = append(slow, sections.Report(launches).Stragglers(setting, individual)...)
			out.replace(i, s.devices(slow))
			kernels, launches, passed = interval(s), interval(s), 0
		}, out.list
	}
}

func interval(s *Story) []KernelTimes {
	out := make([]KernelTimes, s.Layout.World())
	for r := range out {
		out[r] = KernelTimes{}
	}
	return out
}

// devices are the names of ranks' devices, each once.
func (s *Story) devices(ranks []int) []string {
	var out []string
	for _, r := range ranks {
		out = append(out, string(s.job.Placement[r]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func watchMegatron(s *Story, setting float64) (func(int, *Seen), func() []Named) {
	rule := DefaultStraggler()
	rule.Below = setting
	var out names
	spans := make([]float64, s.Layout.World())
	return func(i int, seen *Seen) {
		for r, k := range seen.Kernels {
			spans[r] += k.ForwardSpanMs
		}
		if (i+1)%StragglerLog != 0 {
			return
		}
		throughput := make([]float64, len(spans))
		for r := range spans {
			throughput[r], spans[r] = 1/spans[r], 0
		}
		var now []string
		if r := rule.Line(throughput); r >= 0 {
			now = s.devices([]int{r})
		}
		out.replace(i, now)
	}, out.list
}

func watchMinder(s *Story, setting float64) (func(int, *Seen), func() []Named) {
	var distances *Distances
	var watcher *Watcher
	var out names
	return func(i int, seen *Seen) {
		if watcher == nil {
			set := DefaultMinder(seen.Ms / 1000)
			set.Threshold = setting
			distances, watcher = NewDistances(set, machineMetrics, s.Nodes), NewWatcher(set, machineMetrics)
		}
		var now []string
		if n := watcher.Name(distances.Observe(seen.Machines)); n >= 0 {
			now = []string{fmt.Sprint("n", n)}
		}
		out.replace(i, now)
	}, out.list
}

// Outcome counts what a method made of stories.
type Outcome struct {
	Stories, Right, Wrong, Missed int // stories with a fault
	Complete                      int // of the right ones, those in which every fault has a name
	Clean, CleanRight             int // stories without a fault, and those in which nothing was named
	// times that something was named outside of faults, and iterations there
	False, Iterations int
	Delays            []int
}

// Take judges the names of one story, which has been played.
func (o *Outcome) Take(s *Story, named []Named) {
	right, wrong, outside := -1, false, map[int]bool{}
	found := make([]bool, len(s.Faults))
	for _, n := range named {
		if len(s.Faults) == 0 || n.At < s.From {
			outside[n.At] = true
			continue
		}
		hit := false
		for i, fault := range s.Faults {
			hit = hit || fault[n.Name]
			found[i] = found[i] || fault[n.Name]
		}
		if !hit {
			wrong = true
		} else if right < 0 {
			right = n.At
		}
	}
	o.False += len(outside)
	o.Iterations += s.From
	if len(s.Faults) == 0 {
		o.takeClean(s, len(outside) == 0)
		return
	}
	o.Stories++
	switch {
	case wrong:
		o.Wrong++
	case right < 0:
		o.Missed++
	default:
		o.Right++
		o.Delays = append(o.Delays, right-s.From)
		if !slices.Contains(found, false) {
			o.Complete++
		}
	}
}

func (o *Outcome) takeClean(s *Story, right bool) {
	o.Clean++
	o.Iterations += s.To - s.From
	if right {
		o.CleanRight++
	}
}

// Add joins the outcome of other stories.
func (o *Outcome) Add(p Outcome) {
	o.Stories += p.Stories
	o.Right += p.Right
	o.Wrong += p.Wrong
	o.Missed += p.Missed
	o.Complete += p.Complete
	o.Clean += p.Clean
	o.CleanRight += p.CleanRight
	o.False += p.False
	o.Iterations += p.Iterations
	o.Delays = append(o.Delays, p.Delays...)
}

// Good is the number of stories judged rightly.
func (o *Outcome) Good() int { return o.Right + o.CleanRight }

// PlayTo plays a story once to rivals with all their settings, and returns what each
// named, in the order of methods and of Settings.
func (s *Story) PlayTo(methods []RankMethod) [][][]Named {
	var takes []func(int, *Seen)
	var lists [][]func() []Named
	for _, m := range methods {
		var own []func() []Named
		for _, setting := range m.Settings() {
			take, named := m.Watch(s, setting)
			takes, own = append(takes, take), append(own, named)
		}
		lists = append(lists, own)
	}
	s.Play(func(i int, seen *Seen) {
		for _, take := range takes {
			take(i, seen)
		}
	})
	out := make([][][]Named, len(methods))
	for m, own := range lists {
		for _, named := range own {
			out[m] = append(out[m], named())
		}
	}
	return out
}

// Settings are the default, then the tries.
func (m RankMethod) Settings() []float64 {
	return append([]float64{m.Default}, m.Tries...)
}
