package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/failslow/falcon"
)

// Fault is one fail-slow: a GPU or a node pair that is so many times as slow
// for a while, by the clock of the run.
type Fault struct {
	Device      falcon.Device // empty for a link
	Link        falcon.Link
	FromS, ForS float64
	Times       float64 // > 1
}

func (f Fault) active(atS float64) bool {
	return f.FromS <= atS && atS < f.FromS+f.ForS
}

// Trace is the faults of one run, by their beginnings.
type Trace []Fault

// At are the faults at a time, and when the next change comes.
func (t Trace) At(s float64) (active []Fault, untilS float64) {
	untilS = math.Inf(1)
	for _, f := range t {
		if f.active(s) {
			active = append(active, f)
		}
		for _, edge := range [...]float64{f.FromS, f.FromS + f.ForS} {
			if edge > s {
				untilS = min(untilS, edge)
			}
		}
	}
	return active, untilS
}

// Mix is what a trace is drawn from.
type Mix struct {
	Name          string
	RunS          float64
	Links         []float64  // s: about when each slow link begins
	LinkForS      [2]float64 // it lasts between so and so long
	LinkTimes     [2]float64 // log-uniform, before scaling
	Devices       int
	DeviceForS    [2]float64
	DeviceTimes   [2]float64
	LinksApartS   float64 // deviation of a link's beginning
	ThroughputNow float64 // unmitigated, as a share of healthy: severities are scaled to it
}

// Draw makes the trace of a seed: places, times and severities are random, and
// all severities are then raised to one power such that the unmitigated job
// reaches ThroughputNow of its healthy throughput.
func (m Mix) Draw(s Shape, seed uint64) Trace {
	rng := rand.New(rand.NewPCG(seed, 20))
	var t Trace
	links := ringLinks(s)
	rng.Shuffle(len(links), func(i, k int) {
		links[i], links[k] = links[k], links[i]
	})
	for i, at := range m.Links {
		at += m.LinksApartS * max(-1.5, min(1.5, rng.NormFloat64()))
		t = append(t, Fault{
			Link:  links[i%len(links)],
			FromS: max(0, at),
			ForS:  between(rng, m.LinkForS),
			Times: between(rng, m.LinkTimes),
		})
	}
	home := s.home()
	order := rng.Perm(len(home))
	for i := range m.Devices {
		last := between(rng, m.DeviceForS)
		from := leadS + rng.Float64()*max(0, m.RunS-leadS-last)
		t = append(t, Fault{
			Device: home[order[i]],
			FromS:  from,
			ForS:   last,
			Times:  between(rng, m.DeviceTimes),
		})
	}
	slices.SortFunc(t, func(a, b Fault) int {
		return cmp.Compare(a.FromS, b.FromS)
	})
	return t.scaled(s, m)
}

// leadS is how long a run goes well before a GPU may be slow: the detector has
// to learn what is healthy.
const leadS = 120

// between is log-uniform.
func between(rng *rand.Rand, span [2]float64) float64 {
	return span[0] * math.Pow(span[1]/span[0], rng.Float64())
}

// ringLinks are the node pairs that gradient rings of a healthy job cross.
func ringLinks(s Shape) []falcon.Link {
	home, l := s.home(), s.Layout
	var out []falcon.Link
	for stage := range l.PP {
		for d := range l.DP {
			a := home[l.RankOf(falcon.Coord{DP: d, PP: stage})].Node()
			b := home[l.RankOf(falcon.Coord{DP: (d + 1) % l.DP, PP: stage})].Node()
			if link := falcon.NewLink(a, b); a != b && !slices.Contains(out, link) {
				out = append(out, link)
			}
		}
	}
	return out
}

// scaled finds the power by false position with halved stakes (the Illinois
// rule): throughput falls with it, nearly along a line.
func (t Trace) scaled(s Shape, m Mix) Trace {
	healthy := s.paceMs(nil, calibrationPlays)
	at := func(power float64) (Trace, float64) {
		out := slices.Clone(t)
		for i := range out {
			out[i].Times = math.Pow(t[i].Times, power)
		}
		return out, out.throughput(s, m.RunS, healthy) - m.ThroughputNow
	}
	low, high := 0.0, powerMost
	above := 1 - m.ThroughputNow
	out, below := at(high)
	for range scaleSteps {
		power := (low*below - high*above) / (below - above)
		var off float64
		if out, off = at(power); math.Abs(off) < scaleWithin {
			return out
		}
		if off > 0 {
			low, above, below = power, off, below/2
		} else {
			high, below, above = power, off, above/2
		}
	}
	return out
}

// Bounds of the search for a trace's severity.
const (
	powerMost   = 3.0
	scaleSteps  = 12
	scaleWithin = 0.001 // of the throughput
)

// segmentPlays is how many iterations tell the pace between two changes.
const segmentPlays = 8

// throughput is the unmitigated job's as a share of the healthy one's.
func (t Trace) throughput(s Shape, runS, healthyMs float64) float64 {
	done := 0.0
	for at := 0.0; at < runS; {
		active, until := t.At(at)
		until = min(until, runS)
		done += (until - at) * 1000 / s.paceMs(active, segmentPlays)
		at = until
	}
	return done * healthyMs / (runS * 1000)
}
