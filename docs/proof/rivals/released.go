package rivals

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/docs/proof/evaltest"
)

func compare(a, b float64) int { return cmp.Compare(a, b) }

// median sorts its argument; 0 of none.
func median(values []float64) float64 { return falcon.Median(values) }

// Released is the detection of FALCON's released program: BEAST over the whole
// buffer, again and again, and its checks of what BEAST finds.
type Released struct {
	Model       Beast
	Every       int     // iterations from one run to the next
	Sigma       float64 // points further from the mean of the buffer are dropped
	Probability float64 // least of a change point
	Apart       int     // from the change point before it, more than so many points
	Change      float64 // of the means on either side, over the greater, more than so much
}

// DefaultReleased are the program's constants. A run comes every 5 s there, which
// are every iterations here.
func DefaultReleased(model Beast, every int) Released {
	return Released{
		Model:       model,
		Every:       every,
		Sigma:       3,
		Probability: 0.8,
		Apart:       10,
		Change:      0.2,
	}
}

// Runs are the change points that the model finds, run after run.
func (d Released) Runs(ms []float64, seed uint64) []Run {
	var out []Run
	for n := d.Every; n <= len(ms); n += d.Every {
		r := Run{Seen: n - 1}
		r.kept, r.values = d.withoutFar(ms[:n])
		r.breaks = d.Model.Breaks(r.values, seed+uint64(n))
		out = append(out, r)
	}
	return out
}

// Run is one look at the buffer.
type Run struct {
	Seen   int       // newest iteration in it
	kept   []int     // iterations that were not dropped
	values []float64 // theirs
	breaks []Break
}

// withoutFar drops the values that are far from the mean.
func (d Released) withoutFar(ms []float64) (kept []int, values []float64) {
	centre, scale := stat.PopMeanStdDev(ms, nil)
	for i, x := range ms {
		if scale > 0 && math.Abs(x-centre) > d.Sigma*scale {
			continue
		}
		kept, values = append(kept, i), append(values, x)
	}
	return kept, values
}

// Reports are the change points that the checks let pass, each reported by the
// first run that has it within Apart points.
func (d Released) Reports(runs []Run) []evaltest.Report {
	var out []evaltest.Report
	for _, r := range runs {
		for _, at := range d.check(r) {
			known := slices.ContainsFunc(out, func(o evaltest.Report) bool {
				return max(o.At-at, at-o.At) <= d.Apart
			})
			if !known {
				out = append(out, evaltest.Report{At: at, Seen: r.Seen})
			}
		}
	}
	return out
}

// check returns the iterations of a run's valid change points.
func (d Released) check(r Run) []int {
	points := []int{}
	for _, b := range r.breaks {
		if b.Probability > d.Probability {
			points = append(points, b.At)
		}
	}
	slices.Sort(points)
	var wide []int
	for i, p := range points {
		if i == 0 && p >= d.Apart || i > 0 && p-points[i-1] > d.Apart {
			wide = append(wide, p)
		}
	}
	var out []int
	for i, p := range wide {
		from, to := 0, len(r.values)-1
		if i > 0 {
			from = wide[i-1]
		}
		if i+1 < len(wide) {
			to = wide[i+1]
		}
		if from == p || to <= p {
			continue
		}
		before, after := stat.Mean(r.values[from:p], nil), stat.Mean(r.values[p:to], nil)
		if math.Abs(before-after)/max(before, after) > d.Change {
			out = append(out, r.kept[p])
		}
	}
	return out
}
