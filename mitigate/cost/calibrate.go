package cost

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// ErrCalibration is wrapped by every reason why a profile can't be used.
var ErrCalibration = errors.New("cost: the profile does not price the job")

// noise is the factor up to which a device or link counts as healthy: half of
// what FALCON calls slow (§4.3: 1.1 × the median), so that a plan does not
// chase differences that no test could confirm.
const noise = 1.05

// Calibration is what a model is made from.
type Calibration struct {
	Layout       falcon.Layout
	Placement    falcon.Placement // when the profile was taken
	Profile      falcon.JobProfile
	MicroBatches []int32 // by replica, when the profile was taken
	HealthyMs    float64 // iteration time before any fault; 0 = unknown
	NowMs        float64 // iteration time while the profile was taken; 0 = unknown

	HealthyMicroBatches []int32 // that HealthyMs was measured with; nil = MicroBatches
	// an earlier model of the same job: healthy work, volumes and bandwidths are taken from it,
	// only what is slow is new. nil = all from the profile
	Base *Model
}

// Calibrate makes a model from the job's own measured profile. Without a base
// a stage's healthy work is that of the lower quartile of its ranks: right
// while at most three quarters of them are slow. Its ErrorShare compares what it
// predicts for now with NowMs.
func Calibrate(in Calibration) (Model, error) {
	if err := in.validate(); err != nil {
		return Model{}, err
	}
	m := Model{Layout: in.Layout, Slow: map[falcon.Device]float64{}}
	m.Links.Ratio = slowLinks(in.Profile.Links)
	if in.Base != nil {
		base := *in.Base
		m.Work = base.Work
		m.DPMB = base.DPMB
		m.PPMB = base.PPMB
		m.TPMB = base.TPMB
		m.Chunks = base.Chunks
		m.Links.IntraMBs = base.Links.IntraMBs
		m.Links.InterMBs = base.Links.InterMBs
		m.Links.LatencyMs = base.Links.LatencyMs
		m.RestMs = base.RestMs
	} else {
		in.countedVolumes(&m)
		in.bandwidths(&m)
		in.stageWork(&m)
	}
	in.slowRatios(&m)
	if in.Base == nil {
		in.restTime(&m)
	}
	if in.NowMs > 0 {
		m.ErrorShare = m.Iteration(in.Placement, in.MicroBatches).IterationMs/in.NowMs - 1
	}
	return m, nil
}

func (in Calibration) validate() error {
	l := in.Layout
	if err := l.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrCalibration, err)
	}
	switch {
	case len(in.Placement) != l.World():
		return fmt.Errorf("%w: %d ranks are placed, %v has %d",
			ErrCalibration, len(in.Placement), l, l.World())
	case len(in.MicroBatches) != l.DP || slices.Min(in.MicroBatches) < 1:
		return fmt.Errorf("%w: micro-batches %v for %d replicas; give at least 1 for each",
			ErrCalibration, in.MicroBatches, l.DP)
	case in.HealthyMicroBatches != nil &&
		(len(in.HealthyMicroBatches) != l.DP || slices.Min(in.HealthyMicroBatches) < 1):
		return fmt.Errorf("%w: healthy micro-batches %v for %d replicas; give at least 1 for each",
			ErrCalibration, in.HealthyMicroBatches, l.DP)
	case in.Base != nil && in.Base.Layout != l:
		return fmt.Errorf("%w: the base model is of %v, the job of %v", ErrCalibration, in.Base.Layout, l)
	case len(in.Profile.SelfMs) != l.World():
		return fmt.Errorf("%w: it has times of %d ranks, %v has %d; take a profile first",
			ErrCalibration, len(in.Profile.SelfMs), l, l.World())
	}
	for r, v := range in.Profile.SelfMs {
		if !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("%w: rank %d was not measured (%v ms); take a profile again",
				ErrCalibration, r, v)
		}
	}
	for _, g := range in.Profile.Groups {
		for _, r := range g.Ranks {
			if r < 0 || int(r) >= l.World() {
				return fmt.Errorf("%w: group %v names rank %d of %d", ErrCalibration, g.Ranks, r, l.World())
			}
		}
	}
	return nil
}

func slowLinks(links []falcon.LinkSpeed) map[falcon.Link]float64 {
	out := map[falcon.Link]float64{}
	for _, s := range links {
		if s.Ratio > noise && !math.IsInf(s.Ratio, 0) {
			out[s.Link] = max(out[s.Link], s.Ratio)
		}
	}
	return out
}

// countedVolumes takes payloads as they were counted.
func (in Calibration) countedVolumes(m *Model) {
	m.DPMB = make([]float64, in.Layout.PP)
	var pairs, chunks, tensor []float64
	for _, g := range in.Profile.Groups {
		if len(g.Ranks) < 2 || g.Bytes <= 0 || g.Calls <= 0 {
			continue
		}
		at := in.Layout.Coord(g.Ranks[0])
		switch g.Dimension {
		case falcon.DimDP:
			m.DPMB[at.PP] = max(m.DPMB[at.PP], payloadMB(g))
		case falcon.DimPP:
			pairs = append(pairs, float64(g.Bytes)/float64(g.Calls)/1e6)
			if in.neighbours(g) {
				chunks = append(chunks, float64(g.Calls)/float64(2*in.MicroBatches[at.DP]))
			}
		case falcon.DimTP:
			ring := RingSteps(len(g.Ranks)) / float64(len(g.Ranks))
			tensor = append(tensor, ring*payloadMB(g)/float64(in.MicroBatches[at.DP]))
		}
	}
	m.PPMB, m.TPMB = falcon.Median(pairs), falcon.Median(tensor)
	m.Chunks = max(1, int(math.Round(falcon.Median(chunks))))
}

// neighbours reports whether a pair's boundary is between stages s and s+1.
func (in Calibration) neighbours(g falcon.GroupTransfer) bool {
	a := in.Layout.Coord(g.Ranks[0])
	b := in.Layout.Coord(g.Ranks[1])
	return b.PP-a.PP == 1
}

// payloadMB is what an all-reduce of the same duration would sum. The count of
// a reduce-scatter or an all-gather is one rank's slice, and it makes half of
// an all-reduce's steps.
func payloadMB(g falcon.GroupTransfer) float64 {
	mb := float64(g.Bytes) / 1e6
	if g.Op == falcon.OpReduceScatter || g.Op == falcon.OpAllGather {
		return mb * float64(len(g.Ranks)) / 2
	}
	return mb
}

// bandwidths fits the healthy links: rings and pairs between nodes give two
// equations for bandwidth and latency, payload/bandwidth + steps·latency =
// time; where there is one kind only, latency is 0.
func (in Calibration) bandwidths(m *Model) {
	ring := in.ringBandwidth(*m)
	pair := in.pairBandwidth(*m)
	inside := in.intranodeBandwidth()
	m.Links.IntraMBs = inside
	switch {
	case ring.ms > 0 && pair.ms > 0:
		// Cramer's rule for x = ms per MB and y = ms of latency.
		det := ring.mb*pair.steps - pair.mb*ring.steps
		x := (ring.ms*pair.steps - pair.ms*ring.steps) / det
		y := (ring.mb*pair.ms - pair.mb*ring.ms) / det
		if det != 0 && x > 0 && y >= 0 {
			m.Links.InterMBs = 1e3 / x
			m.Links.LatencyMs = y
			return
		}
		big := ring
		if pair.mb > ring.mb {
			big = pair
		}
		m.Links.InterMBs = 1e3 * big.mb / big.ms
	case ring.ms > 0:
		m.Links.InterMBs = 1e3 * ring.mb / ring.ms
	case pair.ms > 0:
		m.Links.InterMBs = 1e3 * pair.mb / pair.ms
	}
}

// transfer is one equation: mb·x + steps·latency = ms.
type transfer struct{ mb, steps, ms float64 }

// ringBandwidth is the median healthy ring between nodes, of the stage that reduces
// most; a ring with a slow edge counts its payload as much larger.
func (in Calibration) ringBandwidth(m Model) transfer {
	var found []transfer
	for _, g := range in.Profile.Groups {
		if g.Dimension != falcon.DimDP ||
			len(g.Ranks) < 2 ||
			!(g.TransferMs > 0) ||
			g.Bytes <= 0 {
			continue
		}
		ratio := in.ringRatio(m, g)
		if ratio == 0 {
			continue // inside one node
		}
		steps := RingSteps(len(g.Ranks))
		found = append(found, transfer{
			steps / float64(len(g.Ranks)) * payloadMB(g) * ratio,
			steps,
			g.TransferMs,
		})
	}
	return medianRate(found)
}

// ringRatio is the worst ratio on a ring's edges; 0 when none leaves a node.
func (in Calibration) ringRatio(m Model, g falcon.GroupTransfer) float64 {
	worst := 0.0
	for i, r := range g.Ranks {
		a := in.Placement[r].Node()
		b := in.Placement[g.Ranks[(i+1)%len(g.Ranks)]].Node()
		if a != b {
			worst = max(worst, m.Links.ratioOf(a, b))
		}
	}
	return worst
}

func (in Calibration) pairBandwidth(m Model) transfer {
	var found []transfer
	for _, g := range in.Profile.Groups {
		if g.Dimension != falcon.DimPP ||
			len(g.Ranks) != 2 ||
			!(g.TransferMs > 0) ||
			g.Bytes <= 0 ||
			g.Calls <= 0 {
			continue
		}
		ratio := in.ringRatio(m, g)
		if ratio == 0 {
			continue
		}
		n := float64(g.Calls)
		found = append(found, transfer{float64(g.Bytes) / 1e6 / n * ratio, 1, g.TransferMs / n})
	}
	return medianRate(found)
}

// medianRate is the one with the median time per payload.
func medianRate(v []transfer) transfer {
	if len(v) == 0 {
		return transfer{}
	}
	slices.SortFunc(v, func(a, b transfer) int {
		if x, y := a.ms/a.mb, b.ms/b.mb; x != y {
			return compareRates(x, y)
		}
		return compareRates(a.mb, b.mb)
	})
	return v[(len(v)-1)/2]
}

func compareRates(x, y float64) int {
	if x < y {
		return -1
	}
	if x > y {
		return 1
	}
	return 0
}

// intranodeBandwidth is the bandwidth of rings and pairs within nodes, tensor-parallel
// ones apart: their calls are small and their time is in Work.
func (in Calibration) intranodeBandwidth() float64 {
	var speeds []float64
	for _, g := range in.Profile.Groups {
		if len(g.Ranks) < 2 ||
			!(g.TransferMs > 0) ||
			g.Bytes <= 0 ||
			in.crosses(g) {
			continue
		}
		switch g.Dimension {
		case falcon.DimDP:
			speeds = append(speeds,
				RingSteps(len(g.Ranks))/float64(len(g.Ranks))*payloadMB(g)/g.TransferMs*1e3,
			)
		case falcon.DimPP:
			speeds = append(speeds, float64(g.Bytes)/1e6/g.TransferMs*1e3)
		}
	}
	return falcon.Median(speeds)
}

func (in Calibration) crosses(g falcon.GroupTransfer) bool {
	first := in.Placement[g.Ranks[0]].Node()
	return slices.ContainsFunc(g.Ranks, func(r falcon.Rank) bool {
		return in.Placement[r].Node() != first
	})
}

// stageWork is each stage's healthy time, tensor-parallel calls included.
func (in Calibration) stageWork(m *Model) {
	self := make([]float64, in.Layout.PP)
	for s := range self {
		self[s] = healthyOf(in.stageSelf(s)) + in.tensorMs(s)
	}
	m.Work = StagesFromSelf(self)
}

func (in Calibration) stageSelf(s int) []float64 {
	n := in.Layout.TP * in.Layout.DP
	return slices.Clone(in.Profile.SelfMs[s*n : (s+1)*n])
}

// healthyOf is the median of the times within noise of the lower quartile.
func healthyOf(v []float64) float64 {
	slices.Sort(v)
	quartile := v[(len(v)-1)/4]
	n := len(v)
	for v[n-1] > noise*quartile {
		n--
	}
	return falcon.Median(v[:n])
}

// tensorMs is the time in tensor-parallel calls per micro-batch at stage s.
func (in Calibration) tensorMs(s int) float64 {
	var out []float64
	for _, g := range in.Profile.Groups {
		if g.Dimension == falcon.DimTP &&
			len(g.Ranks) > 1 &&
			in.Layout.Coord(g.Ranks[0]).PP == s {
			out = append(out, g.TransferMs/float64(in.MicroBatches[in.Layout.Replica(g.Ranks[0])]))
		}
	}
	return falcon.Median(out)
}

// slowRatios compares each rank with its stage's healthy work. The time in
// tensor-parallel calls does not grow with a slow device.
func (in Calibration) slowRatios(m *Model) {
	for s := range in.Layout.PP {
		tensor := in.tensorMs(s)
		healthy := m.Work[s].Ms()
		n := in.Layout.TP * in.Layout.DP
		for r := s * n; r < (s+1)*n; r++ {
			if f := (in.Profile.SelfMs[r] + tensor) / healthy; healthy > 0 && f > noise {
				m.Slow[in.Placement[r]] = f
			}
		}
	}
}

// restTime is a healthy iteration's time beyond the model, else the present one's.
func (in Calibration) restTime(m *Model) {
	measured := in.NowMs
	of := *m
	micro := in.MicroBatches
	if in.HealthyMs > 0 {
		measured = in.HealthyMs
		of.Slow, of.Links.Ratio = nil, nil
		if in.HealthyMicroBatches != nil {
			micro = in.HealthyMicroBatches
		}
	}
	if measured > 0 {
		m.RestMs = max(0, measured-of.Iteration(in.Placement, micro).IterationMs)
	}
}
