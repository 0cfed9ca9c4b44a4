package history

import (
	"cmp"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// PathRow is how steady communication over one class of paths is: a column of table 2 of the FALCON
// paper, of the link tests that an engine keeps. Messages of different sizes are not compared.
type PathRow struct {
	Class  falcon.LinkClass
	Bytes  int64
	Paths  int     // different ones
	Tests  int     // results, both directions of a path
	MeanMs float64 // of one repeat
	CoV    float64 // standard deviation of the times over their mean; 0 of fewer than two
	// Worst is the path whose own times vary most, of those with PathTests and more; "" = none has so many.
	Worst    string
	WorstCoV float64
}

// PathTests is how many results a path needs to be called unsteady.
const PathTests = 4

// Paths lists the classes, steadiest first. Tests from sinceNs on count; those that failed don't.
func Paths(list []falcon.Validation, sinceNs int64) []PathRow {
	type key struct {
		class falcon.LinkClass
		bytes int64
	}
	all := map[key][]float64{}
	own := map[key]map[string][]float64{}
	for i := range list {
		if list[i].AtNs < sinceNs {
			continue
		}
		for _, l := range list[i].Links {
			if l.Err != "" || !(l.Ms > 0) || math.IsInf(l.Ms, 0) {
				continue
			}
			k := key{l.Class, l.Bytes}
			if own[k] == nil {
				own[k] = map[string][]float64{}
			}
			all[k] = append(all[k], l.Ms)
			own[k][l.Path()] = append(own[k][l.Path()], l.Ms)
		}
	}
	out := make([]PathRow, 0, len(all))
	for k, ms := range all {
		row := PathRow{
			Class: k.class,
			Bytes: k.bytes,
			Paths: len(own[k]),
			Tests: len(ms),
		}
		row.MeanMs, row.CoV = variation(ms)
		for path, times := range own[k] {
			if len(times) < PathTests {
				continue
			}
			_, cov := variation(times)
			if row.Worst == "" ||
				cov > row.WorstCoV ||
				cov == row.WorstCoV && path < row.Worst {
				row.Worst, row.WorstCoV = path, cov
			}
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b PathRow) int {
		return cmp.Or(
			cmp.Compare(a.CoV, b.CoV),
			cmp.Compare(a.Class, b.Class),
			cmp.Compare(a.Bytes, b.Bytes),
		)
	})
	return out
}

// variation is the mean of times and their coefficient of variation, of the sample.
func variation(ms []float64) (mean, cov float64) {
	for _, x := range ms {
		mean += x / float64(len(ms))
	}
	if len(ms) < 2 {
		return mean, 0
	}
	sum := 0.0
	for _, x := range ms {
		sum += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(sum/float64(len(ms)-1)) / mean
}
