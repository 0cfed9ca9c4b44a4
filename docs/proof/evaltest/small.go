package evaltest

import (
	"math"
	"math/rand/v2"

	"github.com/failslow/falcon/detect/bocd"
)

// SmallStep is a lasting change of one size among noise of one class, tried many
// times: how many slow iterations it takes until one is reported.
type SmallStep struct {
	Size    float64 // share by which the level rises
	CoV     float64
	Healthy int // iterations before it
	Within  int // the median of iterations that the issue allows, 0 = none is named
	Noise   Noise
}

// SmallResult is what one setting of the tracker made of a SmallStep.
type SmallResult struct {
	Seeds    int
	Found    int   // onsets placed near the change, within smallAfter iterations
	Took     []int // slow iterations seen when they were reported, the first is 1
	Early    int   // series with an onset before the change
	Relieved int   // of those found, whose relief was reported after the level was back
}

const (
	smallAfter = 300 // iterations for which a step lasts
	smallBack  = 300 // iterations after it
	smallNear  = 10  // iterations by which a placement may be off
)

// Try runs a step for so many seeds.
func (s SmallStep) Try(cfg bocd.TrackerConfig, seed uint64, seeds int) SmallResult {
	r := SmallResult{Seeds: seeds}
	for one := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed+one, math.Float64bits(s.Size)))
		ms := s.Noise.Draw(rng, s.Healthy+smallAfter+smallBack, s.CoV)
		for i := range ms {
			ms[i] *= 1000
			if i >= s.Healthy && i < s.Healthy+smallAfter {
				ms[i] *= 1 + s.Size
			}
		}
		r.add(s, Changes(cfg, ms))
	}
	return r
}

// add judges what was reported of one series.
func (r *SmallResult) add(s SmallStep, changes []bocd.Change) {
	early, found := false, false
	for _, c := range changes {
		off := c.Index - s.Healthy
		switch {
		case c.Kind == bocd.KindOnset && c.DetectedAt < s.Healthy:
			early = true
		case c.Kind == bocd.KindOnset &&
			!found &&
			max(off, -off) <= smallNear &&
			c.DetectedAt < s.Healthy+smallAfter:
			found = true
			r.Found++
			r.Took = append(r.Took, c.DetectedAt-s.Healthy+1)
		case c.Kind == bocd.KindRelief && found && c.DetectedAt >= s.Healthy+smallAfter:
			r.Relieved++
			found = false
		}
	}
	if early {
		r.Early++
	}
}

// Changes are the verified changes that a tracker tells of a series.
func Changes(cfg bocd.TrackerConfig, ms []float64) []bocd.Change {
	var out []bocd.Change
	tracker := bocd.NewTracker(cfg)
	for _, x := range ms {
		changes, _ := tracker.Observe(x)
		for _, c := range changes {
			if c.Kind != bocd.KindJitter {
				out = append(out, c)
			}
		}
	}
	return out
}

// Onsets counts the onsets of a series.
func Onsets(cfg bocd.TrackerConfig, ms []float64) int {
	n := 0
	for _, c := range Changes(cfg, ms) {
		if c.Kind == bocd.KindOnset {
			n++
		}
	}
	return n
}

// Quiet is how many onsets a tracker tells of undisturbed jobs of one class.
type Quiet struct {
	Iterations, Jobs, Onsets int
	WithOnset                int // jobs
}

// Add adds what another part counted.
func (q *Quiet) Add(o Quiet) {
	q.Iterations += o.Iterations
	q.Jobs += o.Jobs
	q.Onsets += o.Onsets
	q.WithOnset += o.WithOnset
}

// Rate is onsets per 20,000 iterations.
func (q *Quiet) Rate() float64 {
	return 20_000 * part(q.Onsets, q.Iterations)
}

// Listen runs one undisturbed job of a class: of 500 to 8,000 iterations, its
// noise 0.1 % to 3 %, both log-uniform.
func Listen(cfg bocd.TrackerConfig, noise Noise, seed, job uint64) Quiet {
	rng := rand.New(rand.NewPCG(seed, job))
	ms := noise.Draw(rng, int(times(rng, 500, 8000)), times(rng, 0.001, 0.03))
	for i := range ms {
		ms[i] *= 1000
	}
	q := Quiet{Iterations: len(ms), Jobs: 1, Onsets: Onsets(cfg, ms)}
	if q.Onsets > 0 {
		q.WithOnset = 1
	}
	return q
}

// Undisturbed is a job of n iterations of one class, ms, its noise 0.1 % to 3 %,
// log-uniform.
func Undisturbed(noise Noise, seed, job uint64, n int) []float64 {
	rng := rand.New(rand.NewPCG(seed, job))
	ms := noise.Draw(rng, n, times(rng, 0.001, 0.03))
	for i := range ms {
		ms[i] *= 1000
	}
	return ms
}

// Drifting is a GPU that loses a share of its speed an hour, in iterations of 10 s
// from iteration 360 on. It returns the loss in percent when it was reported, 0 if
// it never was before half was lost.
func Drifting(cfg bocd.TrackerConfig, noise Noise, perHour, cov float64, seed uint64) float64 {
	const hour = 360
	rng := rand.New(rand.NewPCG(seed, 360))
	n := hour + int(0.3/perHour*hour)
	ms := noise.Draw(rng, n, cov)
	for i := range ms {
		ms[i] *= 1000 * (1 + perHour*float64(max(0, i-hour))/hour)
	}
	for _, c := range Changes(cfg, ms) {
		if c.Kind == bocd.KindOnset {
			return 100 * perHour * float64(c.DetectedAt-hour) / hour
		}
	}
	return 0
}
