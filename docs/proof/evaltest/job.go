package evaltest

import (
	"math"
	"math/rand/v2"
)

// Cause names what the generator put into a job.
type Cause string

// The causes of table 1.
const (
	Healthy    Cause = "none"
	CPU        Cause = "cpu contention"
	GPU        Cause = "gpu degradation"
	Congestion Cause = "network congestion"
	Both       Cause = "several"
)

// Spell is a time in which a job is 10 % or more slower than itself.
type Spell struct {
	From, To int     // first iteration, and the first after it
	Depth    float64 // greatest excess of the noise-free level
	Ladder   bool    // it came by steps or a ramp below 10 %
}

// Job is one generated series with its truth.
type Job struct {
	Cause  Cause
	CoV    float64
	Spells []Spell   // none in a healthy job
	Ms     []float64 // one per iteration
}

// least and most iterations that lie before a spell's onset and between two.
const (
	lead  = 64
	apart = 100
)

// Generate makes the job of this number: n iterations, n ≥ 500.
func Generate(m Mix, seed, number uint64, n int) Job {
	rng := rand.New(rand.NewPCG(seed, number*1000+uint64(m.Jobs)))
	j := Job{Cause: Healthy, CoV: between(rng, m.CoVFrom, m.CoVTo)}
	level := make([]float64, n)
	for i := range level {
		level[i] = 1
	}
	if rng.Float64() < m.share() {
		j.Cause = m.cause(rng)
		m.slow(rng, j.Cause, level)
		j.Spells = spells(level, m.least())
	}
	if rng.Float64() < calmShare {
		j.Ms = plain(rng, level, m.MsPer, j.CoV)
		return j
	}
	benign(rng, level, len(j.Spells) > 0)
	j.Ms = noisy(rng, level, m.MsPer, j.CoV)
	disturb(rng, j.Ms)
	return j
}

func (m Mix) cause(rng *rand.Rand) Cause {
	switch u := rng.Float64(); {
	case u < m.CPU:
		return CPU
	case u < m.CPU+m.GPU:
		return GPU
	case u < m.CPU+m.GPU+m.Both:
		return Both
	}
	return Congestion
}

// slow puts a job's spells into its level.
func (m Mix) slow(rng *rand.Rand, cause Cause, level []float64) {
	n := len(level)
	switch u := rng.Float64(); {
	case u < m.Start:
		raise(level, 0, min(m.lasting(rng), n-apart), m.depth(rng))
		return
	case u < m.Start+m.Ladder:
		m.ladder(rng, level)
		return
	}
	count := 1 + rng.IntN(m.SpellMax)
	from := lead + rng.IntN(max(1, n/count-lead-2*m.least()))
	for range count {
		to := min(n, from+m.lasting(rng))
		if to-from < m.least() {
			return
		}
		raise(level, from, to, m.depth(rng))
		if cause == Both && to-from > 2*m.least() {
			raise(
				level,
				from+rng.IntN((to-from)/2)+1,
				to,
				m.depth(rng),
			) // a second fault during the first
		}
		from = to + apart + rng.IntN(apart)
	}
}

// ladder raises the level in steps that are each below 10 %.
func (m Mix) ladder(rng *rand.Rand, level []float64) {
	steps := 2 + rng.IntN(3)
	rise := make([]float64, steps)
	for sum := 1.0; sum < 1+shallowest; {
		sum = 1
		for i := range rise {
			rise[i] = between(rng, 0.04, 0.09)
			sum *= 1 + rise[i]
		}
	}
	from := lead + rng.IntN(len(level)/4)
	to := min(len(level), from+steps*200+m.lasting(rng))
	for _, r := range rise {
		raise(level, from, to, r)
		from += 20 + rng.IntN(180)
	}
}

// lasting is a spell's length in iterations.
func (m Mix) lasting(rng *rand.Rand) int {
	minutes := rng.ExpFloat64() * m.Minutes
	return max(int(minutes*60_000/m.MsPer), m.least())
}

func (m Mix) depth(rng *rand.Rand) float64 {
	return shallowest * math.Pow(m.Deepest/shallowest, rng.Float64())
}

func raise(level []float64, from, to int, by float64) {
	for i := from; i < min(to, len(level)); i++ {
		level[i] *= 1 + by
	}
}

// spells reads the truth off the noise-free level.
func spells(level []float64, least int) []Spell {
	var out []Spell
	for i := 0; i < len(level); i++ {
		if level[i] < 1.1 {
			continue
		}
		s := Spell{From: i, Ladder: i > 0 && level[i-1] > 1.001}
		for ; i < len(level) && level[i] >= 1.1; i++ {
			s.Depth = max(s.Depth, level[i]-1)
		}
		if s.To = i; s.To-s.From >= least {
			out = append(out, s)
		}
	}
	return out
}

func between(rng *rand.Rand, from, to float64) float64 {
	return from + (to-from)*rng.Float64()
}
