package jobtest

import (
	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/passes"
)

// Healthy times of the active tests, ms, and the ratio over the median that is
// slow (FALCON §4.4).
const (
	gemmMs     = 4
	exchangeMs = 2
	slowOver   = 1.2
)

// Validate runs the tests of an ask on the job as it is now, with the noise of
// everything else.
func (j *Job) Validate(ask falcon.ValidationAsk) falcon.Validation {
	v := falcon.Validation{
		Ask:       ask,
		State:     falcon.ValidationDone,
		Iteration: j.next,
		Emulated:  true,
	}
	for _, r := range ask.GEMM {
		d := j.Placement[r]
		clock := 1.0
		if c := j.Clock[d]; c > 0 {
			clock = c
		}
		v.GEMM = append(v.GEMM, falcon.GEMMResult{
			Rank:   r,
			Device: d,
			Ms:     j.noisy(gemmMs / clock),
		})
	}
	for _, ring := range ask.Rings {
		for i := range ring {
			if len(ring) > 2 || i == 0 {
				v.Links = append(v.Links, j.exchange(ring[i], ring[(i+1)%len(ring)])...)
			}
		}
	}
	seen := map[passes.Pair]bool{}
	for _, order := range ask.Trees {
		for _, pass := range passes.Tree(order) {
			for _, e := range pass.Pairs {
				if !seen[e] {
					seen[e] = true
					v.Links = append(v.Links, j.exchange(e[0], e[1])...)
				}
			}
		}
	}
	for _, p := range ask.Pairs {
		v.Links = append(v.Links, j.exchange(p[0], p[1])...)
	}
	compare(&v)
	return v
}

// exchange times both directions between two ranks.
func (j *Job) exchange(a, b falcon.Rank) []falcon.LinkResult {
	one := func(a, b falcon.Rank) falcon.LinkResult {
		x, y := j.Placement[a], j.Placement[b]
		r := falcon.LinkResult{
			From:       a,
			To:         b,
			FromDevice: x,
			ToDevice:   y,
			Class:      falcon.LinkIntraNode,
			Bytes:      1 << 20,
			Basis:      "class",
		}
		r.Ms = j.noisy(exchangeMs * j.slowerBy(x.Node(), y.Node()))
		if x.Node() != y.Node() {
			r.Class = falcon.LinkSameRail
			r.Link = falcon.NewLink(x.Node(), y.Node()).String()
		}
		return r
	}
	return []falcon.LinkResult{one(a, b), one(b, a)}
}

// compare judges each result against the median of its class.
func compare(v *falcon.Validation) {
	var gemms []float64
	for _, g := range v.GEMM {
		gemms = append(gemms, g.Ms)
	}
	for i := range v.GEMM {
		g := &v.GEMM[i]
		g.MedianMs = falcon.Median(gemms)
		g.Ratio = g.Ms / g.MedianMs
		g.Slow = g.Ratio > slowOver
	}
	classes := map[falcon.LinkClass][]float64{}
	for _, l := range v.Links {
		classes[l.Class] = append(classes[l.Class], l.Ms)
	}
	for i := range v.Links {
		l := &v.Links[i]
		if len(classes[l.Class]) < 3 {
			l.Basis = ""
			continue
		}
		l.BaseMs = falcon.Median(classes[l.Class])
		l.Ratio = l.Ms / l.BaseMs
		l.Slow = l.Ratio > slowOver
	}
}
