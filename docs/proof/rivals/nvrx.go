package rivals

import (
	"math"
	"slices"
	"strings"
)

// KernelTimes are one rank's times of one report interval: of each kernel, or of each
// section of code, by name, one value per run.
type KernelTimes map[string][]float64

// communication is in the names of NCCL's kernels, which get no score: they are longest on
// the ranks that wait for a slow one.
const communication = "ncclDev"

// summary is what a report keeps of a kernel.
type summary struct {
	median, total float64
}

// Nvrx computes performance scores as NVIDIA's resiliency extension does, report after
// report. One is for kernels of GPUs or for sections of code.
type Nvrx struct {
	// Sections says that each name has a score of its own and the rank's is the least;
	// else the scores of kernels are averaged by the time spent in them.
	Sections bool
	best     []map[string]float64 // per rank: least median of each kernel so far
}

// Scored are the scores of one report, by rank: 1 is best, NaN where nothing was
// measured.
type Scored struct {
	Relative   []float64 // to the fastest rank
	Individual []float64 // to the rank's own best report
}

// Report scores one interval of all ranks.
func (n *Nvrx) Report(ranks []KernelTimes) Scored {
	sums := make([]map[string]summary, len(ranks))
	fastest, by := map[string]float64{}, map[string]int{}
	for r, kernels := range ranks {
		sums[r] = map[string]summary{}
		for name, runs := range kernels {
			if len(runs) == 0 || strings.Contains(name, communication) {
				continue
			}
			s := summary{median: median(slices.Clone(runs))}
			if !measured(s.median) {
				continue
			}
			for _, ms := range runs {
				s.total += ms
			}
			sums[r][name] = s
			by[name]++
			if by[name] == 1 || s.median < fastest[name] {
				fastest[name] = s.median
			}
		}
	}
	for name, seen := range by {
		if seen < len(ranks) {
			delete(fastest, name) // not every rank ran it: no reference
		}
	}
	for len(n.best) < len(ranks) {
		n.best = append(n.best, map[string]float64{})
	}
	var out Scored
	for r := range ranks {
		for name, s := range sums[r] {
			if b, known := n.best[r][name]; !known || s.median < b {
				n.best[r][name] = s.median
			}
		}
		out.Relative = append(out.Relative, n.score(sums[r], fastest))
		out.Individual = append(out.Individual, n.score(sums[r], n.best[r]))
	}
	return out
}

// score is the mean of reference over median, weighted by the time spent, or the least
// of them.
func (n *Nvrx) score(kernels map[string]summary, reference map[string]float64) float64 {
	sum, weight, least := 0.0, 0.0, math.NaN()
	for _, name := range sortedNames(kernels) {
		s := kernels[name]
		ref, known := reference[name]
		if !known {
			continue
		}
		one := ref / s.median
		sum, weight = sum+one*s.total, weight+s.total
		if math.IsNaN(least) || one < least {
			least = one
		}
	}
	if n.Sections {
		return least
	}
	return sum / weight // NaN of none
}

// measured reports whether a value is a positive finite number; others are as if they
// were not measured.
func measured(v float64) bool {
	return v > 0 && !math.IsInf(v, 1)
}

func sortedNames(kernels map[string]summary) []string {
	out := make([]string, 0, len(kernels))
	for name := range kernels {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// NvrxThreshold is the default of identify_stragglers.
const NvrxThreshold = 0.75

// Stragglers are the ranks with a score below a threshold; individual says whether the
// individual score counts too, as it does by default.
func (s Scored) Stragglers(threshold float64, individual bool) []int {
	var out []int
	for r := range s.Relative {
		if s.Relative[r] < threshold || individual && s.Individual[r] < threshold {
			out = append(out, r)
		}
	}
	return out
}
