package history

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

func TestPathsByClass(t *testing.T) {
	at := func(ns int64, links ...falcon.LinkResult) falcon.Validation {
		return falcon.Validation{AtNs: ns, Links: links}
	}
	l := func(class falcon.LinkClass, from, to falcon.Device, ms float64) falcon.LinkResult {
		return falcon.LinkResult{
			Class:      class,
			FromDevice: from,
			ToDevice:   to,
			Bytes:      1 << 20,
			Ms:         ms,
		}
	}
	inside, outside := falcon.LinkIntraNode, falcon.LinkSameRail
	var list []falcon.Validation
	for i := range 4 {
		list = append(list, at(
			int64(i+1),
			l(inside, "n0.g0", "n0.g1", 1),
			l(inside, "n0.g1", "n0.g0", 1.02),
			// one of them varies
			l(outside, "n0.g0", "n1.g0", 10),
			l(outside, "n0.g0", "n2.g0", []float64{10, 10, 20, 20}[i]),
			falcon.LinkResult{
				Class: outside,
				Bytes: 1 << 20,
				Err:   "refused",
				Ms:    9999,
			},
			l(outside, "n0.g0", "n3.g0", math.Inf(1)),
		))
	}
	got := Paths(list, 0)
	if len(got) != 2 || got[0].Class != inside || got[1].Class != outside {
		t.Fatalf("%+v", got)
	}
	if r := got[0]; r.Paths != 1 || r.Tests != 8 || r.CoV > 0.02 || r.Worst != "n0.g0-n0.g1" {
		t.Errorf("%+v", r)
	}
	if r := got[1]; r.Paths != 2 ||
		r.Tests != 8 ||
		math.Abs(r.MeanMs-12.5) > 1e-9 ||
		r.Worst != "n0-n2" ||
		math.Abs(r.WorstCoV-0.3849) > 1e-4 {
		t.Errorf("%+v", r)
	}
	if got := Paths(list, 4); len(got) != 2 || got[1].Tests != 2 || got[1].Worst != "" {
		t.Errorf("since the last test: %+v", got)
	}
	one := Paths([]falcon.Validation{at(1, l(inside, "n0.g0", "n0.g1", 1))}, 0)
	if len(one) != 1 || one[0].CoV != 0 {
		t.Errorf("a single result varies: %+v", one)
	}
}

// The formula against gonum's.
func TestVariation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.SliceOfN(rapid.Float64Range(1e-3, 1e4), 2, 50).Draw(t, "ms")
		mean, cov := variation(ms)
		m, s := stat.MeanStdDev(ms, nil)
		if math.Abs(mean-m) > 1e-6*m || math.Abs(cov-s/m) > 1e-6 {
			t.Fatalf("%v %v, want %v %v", mean, cov, m, s/m)
		}
	})
}
