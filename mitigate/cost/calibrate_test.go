package cost

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// measured is what a profile of a job that behaves like m would hold: rings
// and messages timed one by one, here written out step by step.
func measured(m Model, p falcon.Placement, micro []int32, zero bool) falcon.JobProfile {
	l := m.Layout
	var out falcon.JobProfile
	tensorMs := 0.0
	if l.TP > 1 {
		tensorMs = 1.5
	}
	for r, d := range p {
		work := m.Work[l.Coord(falcon.Rank(r)).PP].Ms()
		out.SelfMs = append(out.SelfMs, work*max(1, m.Slow[d])-tensorMs)
	}
	for _, g := range l.Groups(falcon.DimTP) {
		n := float64(micro[l.Replica(g.Ranks[0])])
		bytes := m.TPMB * 1e6 * float64(l.TP) / RingSteps(l.TP) * n
		out.Groups = append(out.Groups, falcon.GroupTransfer{
			Dimension:  falcon.DimTP,
			Ranks:      g.Ranks,
			Op:         falcon.OpAllReduce,
			Calls:      4 * int(n),
			Bytes:      int64(bytes),
			TransferMs: tensorMs * n,
		})
	}
	for _, g := range l.Groups(falcon.DimDP) {
		k := len(g.Ranks)
		stepMs := 0.0
		mb := m.DPMB[l.Coord(g.Ranks[0]).PP]
		for i, r := range g.Ranks {
			stepMs = max(stepMs, m.Links.TransferMs(p[r].Node(), p[g.Ranks[(i+1)%k]].Node(), mb/float64(k)))
		}
		t := falcon.GroupTransfer{
			Dimension: falcon.DimDP,
			Ranks:     g.Ranks,
			Op:        falcon.OpAllReduce,
			Calls:     1,
			Bytes:     int64(mb * 1e6),
		}
		for range 2 * (k - 1) {
			t.TransferMs += stepMs
		}
		if zero {
			t.Op = falcon.OpReduceScatter
			t.Calls = 2
			t.Bytes = int64(2 * mb * 1e6 / float64(k))
		}
		out.Groups = append(out.Groups, t)
	}
	for _, g := range l.Groups(falcon.DimPP) {
		for i := range len(g.Ranks) - 1 {
			n := 2 * int(micro[l.Replica(g.Ranks[0])])
			ms := m.Links.TransferMs(
				p[g.Ranks[i]].Node(),
				p[g.Ranks[i+1]].Node(),
				m.PPMB,
			)
			out.Groups = append(out.Groups, falcon.GroupTransfer{
				Dimension:  falcon.DimPP,
				Ranks:      g.Ranks[i : i+2],
				Op:         falcon.OpSend,
				Calls:      n,
				Bytes:      int64(m.PPMB * 1e6 * float64(n)),
				TransferMs: ms * float64(n),
			})
		}
	}
	for link, ratio := range m.Links.Ratio {
		out.Links = append(out.Links, falcon.LinkSpeed{Link: link, Ratio: ratio})
	}
	return out
}

// A model is found again in the profile of a job that behaves like it, and then
// it predicts placements and splits that it has not seen.
func TestCalibrateFindsTheModel(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for i := range 200 {
		l := falcon.Layout{TP: 1 + r.IntN(2), DP: 4, PP: 1 + r.IntN(4)}
		m, p := job(l, l.TP*(1+i%2))
		if l.TP == 1 {
			m.TPMB = 0
		}
		m.Slow[p[r.IntN(len(p))]] = 1.5 + r.Float64()
		a := p[r.IntN(len(p))].Node()
		b := p[r.IntN(len(p))].Node()
		if a != b {
			m.Links.Ratio[falcon.NewLink(a, b)] = 2 + r.Float64()
		}
		healthy := m
		healthy.Slow, healthy.Links.Ratio = nil, nil
		micro := []int32{8, 8, 6, 8}
		got, err := Calibrate(Calibration{
			Layout:              l,
			Placement:           p,
			Profile:             measured(m, p, micro, i%3 == 0),
			MicroBatches:        micro,
			HealthyMs:           healthy.Iteration(p, even(4, 8)).IterationMs,
			HealthyMicroBatches: even(4, 8),
			NowMs:               m.Iteration(p, micro).IterationMs,
		})
		// without messages between stages, latency counts as bandwidth
		if err != nil || math.Abs(got.ErrorShare) > 5e-3 {
			t.Fatalf("%v: error share %v (%v)", l, got.ErrorShare, err)
		}
		q := slices.Clone(p)
		size := l.TP * (1 + i%2)
		for k := range size { // the first node and the last change places
			q[k], q[len(q)-size+k] = q[len(q)-size+k], q[k]
		}
		x := got.Iteration(q, []int32{5, 9, 8, 8}).IterationMs
		y := m.Iteration(q, []int32{5, 9, 8, 8}).IterationMs
		if math.Abs(x-y) > 0.01*y {
			t.Fatalf("%v: %.2f ms elsewhere, want %.2f; links %+v against %+v", l, x, y, got.Links, m.Links)
		}
		v := got.Volumes(q, micro)
		w := m.Volumes(q, micro)
		for _, d := range []falcon.Dimension{falcon.DimDP, falcon.DimPP, falcon.DimTP} {
			if math.Abs(v[d]-w[d]) > 1e-3*w[d] {
				t.Fatalf("%v: %s moves %v MB, want %v", l, d, v[d], w[d])
			}
		}
	}
}

// After stragglers were put together, a whole stage may be slow: only a model
// from before tells that from a stage with more work.
func TestCalibrateOnABase(t *testing.T) {
	l := falcon.Layout{TP: 1, DP: 4, PP: 3}
	m, p := job(l, 1)
	base, err := Calibrate(Calibration{
		Layout:       l,
		Placement:    p,
		Profile:      measured(m, p, even(4, 8), false),
		MicroBatches: even(4, 8),
		HealthyMs:    m.Iteration(p, even(4, 8)).IterationMs,
	})
	if err != nil {
		t.Fatal(err)
	}
	for d := range 4 {
		m.Slow[p[l.RankOf(falcon.Coord{DP: d, PP: 1})]] = 2
	}
	in := Calibration{
		Layout:       l,
		Placement:    p,
		Profile:      measured(m, p, even(4, 8), false),
		MicroBatches: even(4, 8),
		NowMs:        m.Iteration(p, even(4, 8)).IterationMs,
	}
	alone, err := Calibrate(in)
	if err != nil || len(alone.Slow) != 0 {
		t.Errorf("without a base %v is slow (%v)", alone.Slow, err)
	}
	in.Base = &base
	got, err := Calibrate(in)
	if err != nil || len(got.Slow) != 4 || math.Abs(got.ErrorShare) > 1e-3 {
		t.Errorf("%v is slow, error share %v (%v)", got.Slow, got.ErrorShare, err)
	}
}

// Interleaving shows in the number of messages.
func TestCalibrateCountsChunks(t *testing.T) {
	l := falcon.Layout{TP: 1, DP: 2, PP: 2}
	m, p := job(l, 1)
	prof := measured(m, p, even(2, 4), false)
	for i, g := range prof.Groups {
		if g.Dimension == falcon.DimPP {
			prof.Groups[i].Calls = 3 * g.Calls
			prof.Groups[i].Bytes = 3 * g.Bytes
			prof.Groups[i].TransferMs = 3 * g.TransferMs
		}
	}
	got, err := Calibrate(Calibration{
		Layout:       l,
		Placement:    p,
		Profile:      prof,
		MicroBatches: even(2, 4),
	})
	if err != nil || got.Chunks != 3 || math.Abs(got.PPMB-2) > 1e-6 {
		t.Errorf("%d chunks, %v MB a message (%v)", got.Chunks, got.PPMB, err)
	}
}

func TestCalibrateRefuses(t *testing.T) {
	l := falcon.Layout{TP: 1, DP: 2, PP: 1}
	_, p := job(l, 1)
	good := Calibration{
		Layout:       l,
		Placement:    p,
		Profile:      falcon.JobProfile{SelfMs: []float64{1, 1}},
		MicroBatches: even(2, 1),
	}
	if _, err := Calibrate(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Calibration){
		"take a profile first": func(c *Calibration) { c.Profile.SelfMs = nil },
		"take a profile again": func(c *Calibration) {
			c.Profile.SelfMs = []float64{1, math.NaN()}
		},
		"1 ranks are placed": func(c *Calibration) { c.Placement = p[:1] },
		"give at least 1":    func(c *Calibration) { c.MicroBatches = []int32{1, 0} },
		"names rank 7": func(c *Calibration) {
			c.Profile.Groups = []falcon.GroupTransfer{{Ranks: []falcon.Rank{0, 7}}}
		},
		"must each be at least 1":    func(c *Calibration) { c.Layout.PP = 0 },
		"the base model is of":       func(c *Calibration) { c.Base = &Model{} },
		"healthy micro-batches [1] ": func(c *Calibration) { c.HealthyMicroBatches = []int32{1} },
	} {
		c := good
		change(&c)
		_, err := Calibrate(c)
		if !errors.Is(err, ErrCalibration) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
