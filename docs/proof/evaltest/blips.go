package evaltest

import (
	"math/rand/v2"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// Blips is one cell of the straggler chapter's exercise on its code 18.5.1: a
// rank of eight is 2.3 times as slow in each step with probability P, and is
// condemned after C steps running above 1.5 times its peers' median.
type Blips struct {
	P         float64
	C         int
	Runs      int
	Steps     int // of each run
	Condemned int // runs in which the rank was condemned
	Others    int // runs in which another rank was
	Survived  int // steps until the rank was condemned, summed over those runs
}

// The chapter's job.
const (
	blipRanks = 8
	blipRank  = 5
	blipBase  = 100.0
	blipNoise = 6.0 // uniform, to either side
	blipSlow  = 2.3
	blipRule  = 1.5
)

// Sweep runs a cell with the live detector's watch (detect/peer.Watch).
func Sweep(p float64, c, runs, steps int, seed uint64) Blips {
	b := Blips{P: p, C: c, Runs: runs, Steps: steps}
	for run := range runs {
		rng := rand.New(rand.NewPCG(seed, uint64(run)))
		condemned, others := b.run(rng)
		if condemned > 0 {
			b.Condemned++
			b.Survived += condemned
		}
		if others {
			b.Others++
		}
	}
	return b
}

// run returns after how many steps the rank was condemned, 0 if it never was.
func (b *Blips) run(rng *rand.Rand) (condemned int, others bool) {
	layout := falcon.Layout{TP: 1, DP: blipRanks, PP: 1}
	watch := peer.NewWatch(blipRanks, blipRule, b.C)
	for step := range b.Steps {
		res := stepOf(rng, b.P)
		for _, s := range watch.Look(layout, &res, int64(step)) {
			switch {
			case !s.Failing:
			case s.Rank == blipRank:
				return step + 1, others
			default:
				others = true
			}
		}
	}
	return 0, others
}

// stepOf is one step of all ranks as a profile would show it.
func stepOf(rng *rand.Rand, p float64) peer.Result {
	res := peer.Result{Ranks: make([]peer.Rank, blipRanks)}
	for r := range res.Ranks {
		ms := blipBase + blipNoise*(2*rng.Float64()-1)
		if r == blipRank && rng.Float64() < p {
			ms *= blipSlow
		}
		res.Ranks[r] = peer.Rank{
			Rank:     falcon.Rank(r),
			Measured: true,
			SelfMs:   ms,
			Peers:    blipRanks - 1,
			Steps:    []float64{ms},
		}
	}
	return res
}
