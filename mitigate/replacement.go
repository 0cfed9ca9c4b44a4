package mitigate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
)

// ErrReplacement is wrapped by every error about a replacement that can't be priced.
var ErrReplacement = errors.New("mitigate: bad replacement")

// Bounds of a replacement's numbers, so that loops stay short and sums exact.
const (
	replacementRanksMost = 1 << 24
	replacementMicroMost = 1 << 16
	replacementTimeMost  = 1e12 // ms and s
)

// Replacement is one lastingly slow rank of a synchronous job, with the remedies for it.
type Replacement struct {
	Ranks        int     // K
	ReplicaRanks int     // ranks that leave with the slow one when it is dropped; 0 = 1, plain data parallelism
	StepMs       float64 // healthy
	SlowRatio    float64 // the slow rank's step over the healthy one, ≥ 1
	RemainingS   float64 // of the allocation, by the clock
	ReplaceS     float64 // the job is stopped: fence, membership change, restore
	DropS        float64 // the same for a drop
	Spares       int     // warm ones
	SpareWaitS   float64 // until a node is to be had when there is no spare; 0 = never
	MicroBatches int     // of one rank and step: work moves in such pieces; 0 = freely
}

// RemedyName is one way of going on.
type RemedyName string

// The remedies, from the least to the most that changes.
const (
	RemedyIgnore    RemedyName = "ignore"
	RemedyRebalance RemedyName = "rebalance"
	RemedyDrop      RemedyName = "drop"
	RemedyReplace   RemedyName = "replace"
)

// Remedy is what one way of going on costs. Lost is against all ranks healthy
// over the same RemainingS, so a drop counts the ranks that train no more.
type Remedy struct {
	Name          RemedyName
	Available     bool
	Reason        string  // what it does, or why it can't be had
	StepMs        float64 // afterwards; of a replacement that is waited for, after it
	DownS         float64 // the job is stopped
	Throughput    float64 // afterwards, as a share of the healthy job's samples per second
	LostS         float64 // seconds of healthy training lost in RemainingS, at most that
	LostGPUHours  float64
	DelayS        float64 // how much later the work of RemainingS healthy seconds ends
	DelayGPUHours float64

	rate float64 // 1 − Throughput, without the rounding
}

// ReplacementPrice are all remedies, in the order of the constants, and the
// run lengths from which on replacing is the better choice; +Inf = never.
type ReplacementPrice struct {
	Remedies       []Remedy
	Best           RemedyName // least LostS among the available ones
	OverDropS      float64    // replace against drop: ReplaceS · K for one of K ranks, no drop cost and a spare at hand
	OverIgnoreS    float64
	OverRebalanceS float64
}

// Price prices all remedies. The slowest rank sets the step (T_step = max t_k): a rank at ratio r
// leaves 1/r of the throughput, a drop (K − k)/K of it. Errors wrap ErrReplacement.
func (p Replacement) Price() (ReplacementPrice, error) {
	p.ReplicaRanks = cmp.Or(p.ReplicaRanks, 1)
	if err := p.validate(); err != nil {
		return ReplacementPrice{}, err
	}
	ignore, rebalance, drop := p.ignoreRemedy(), p.rebalanceRemedy(), p.dropRemedy()
	replace, meanwhile := p.replaceRemedy(ignore, rebalance, drop)
	out := ReplacementPrice{Remedies: []Remedy{ignore, rebalance, drop, replace}, Best: RemedyIgnore}
	best := ignore.LostS
	for _, r := range out.Remedies {
		if r.Available && r.LostS < best {
			out.Best, best = r.Name, r.LostS
		}
	}
	out.OverDropS = p.breakEven(replace, meanwhile, drop)
	out.OverIgnoreS = p.breakEven(replace, meanwhile, ignore)
	out.OverRebalanceS = p.breakEven(replace, meanwhile, rebalance)
	return out, nil
}

func (p Replacement) validate() error {
	bad := func(v, least float64) bool { return !(v >= least) || v > replacementTimeMost }
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{p.Ranks < 1 || p.Ranks > replacementRanksMost, fmt.Sprintf("ranks %d is not between 1 and %d", p.Ranks, replacementRanksMost)},
		{p.ReplicaRanks < 1 || p.ReplicaRanks > p.Ranks, fmt.Sprintf("replica_ranks %d is not between 1 and the %d ranks", p.ReplicaRanks, p.Ranks)},
		{!(p.StepMs > 0) || p.StepMs > replacementTimeMost, fmt.Sprintf("step_ms %v is no positive time", p.StepMs)},
		{!(p.SlowRatio >= 1) || p.SlowRatio > 1e6, fmt.Sprintf("slow_ratio %v is not between 1 and 1e6: it is the slow rank's step over the healthy one", p.SlowRatio)},
		{bad(p.RemainingS, 0), fmt.Sprintf("remaining_s %v is no time", p.RemainingS)},
		{bad(p.ReplaceS, 0), fmt.Sprintf("replace_s %v is no time", p.ReplaceS)},
		{bad(p.DropS, 0), fmt.Sprintf("drop_s %v is no time", p.DropS)},
		{bad(p.SpareWaitS, 0), fmt.Sprintf("spare_wait_s %v is no time", p.SpareWaitS)},
		{p.Spares < 0, fmt.Sprintf("spares %d is negative", p.Spares)},
		{p.MicroBatches < 0 || p.MicroBatches > replacementMicroMost, fmt.Sprintf("micro_batches %d is not between 0 and %d", p.MicroBatches, replacementMicroMost)},
	} {
		if c.bad {
			return fmt.Errorf("%w: %s", ErrReplacement, c.text)
		}
	}
	return nil
}

func (p Replacement) ignoreRemedy() Remedy {
	return p.withLoss(Remedy{
		Name: RemedyIgnore, Available: true, Reason: "all ranks wait for the slow one at every step",
		StepMs: p.StepMs * p.SlowRatio, rate: 1 - 1/p.SlowRatio,
	})
}

// rebalanceRemedy moves work from the slow rank to the others, the batch unchanged.
// In pieces of 1/M of a rank's step, m of them stay: the step takes
// max(m·r, ⌈(K·M − m)/(K − 1)⌉)/M of the healthy one.
func (p Replacement) rebalanceRemedy() Remedy {
	r := Remedy{Name: RemedyRebalance, Available: true, Reason: "work moves to faster ranks in steps as fine as needed: a bound"}
	r.rate = (1 - 1/p.SlowRatio) / float64(p.Ranks)
	if p.MicroBatches > 0 {
		keep, ratio := p.bestPieces()
		r.rate = 1 - 1/ratio
		r.Reason = fmt.Sprintf("the slow rank keeps %d of its %d micro-batches", keep, p.MicroBatches)
	}
	r.StepMs = p.StepMs / (1 - r.rate)
	if p.Ranks == 1 {
		r.Available, r.Reason = false, "there is no other rank to move work to"
	}
	return p.withLoss(r)
}

func (p Replacement) bestPieces() (keep int, ratio float64) {
	m, others := p.MicroBatches, p.Ranks-1
	keep, ratio = m, p.SlowRatio
	if others == 0 {
		return keep, ratio
	}
	for k := m; k >= 1; k-- {
		most := (p.Ranks*m - k + others - 1) / others
		if v := max(float64(k)*p.SlowRatio, float64(most)) / float64(m); v < ratio {
			keep, ratio = k, v
		}
	}
	return keep, ratio
}

func (p Replacement) dropRemedy() Remedy {
	r := Remedy{
		Name: RemedyDrop, Available: p.Ranks > p.ReplicaRanks, StepMs: p.StepMs, DownS: p.DropS,
		rate:   float64(p.ReplicaRanks) / float64(p.Ranks),
		Reason: fmt.Sprintf("goes on with %d ranks and as much smaller a batch", p.Ranks-p.ReplicaRanks),
	}
	if !r.Available {
		r.Reason = "no replica would be left"
	}
	return p.withLoss(r)
}

// replaceRemedy goes on with all ranks healthy; without a spare the cheapest other
// remedy holds until a node is to be had: that one is returned too.
func (p Replacement) replaceRemedy(others ...Remedy) (r, meanwhile Remedy) {
	r = Remedy{Name: RemedyReplace, Available: true, StepMs: p.StepMs, DownS: p.ReplaceS, Reason: "a warm spare takes the slow rank's place"}
	if p.Spares > 0 {
		return p.withLoss(r), Remedy{}
	}
	if p.SpareWaitS == 0 {
		r.Available, r.Reason = false, "there is no spare"
		return p.withLoss(r), Remedy{}
	}
	best := math.Inf(1)
	for _, o := range others {
		if lost := o.lostWithin(p.SpareWaitS); o.Available && lost < best {
			meanwhile, best = o, lost
		}
	}
	r.Reason = fmt.Sprintf("%s until a node is to be had after %.0f s", meanwhile.Name, p.SpareWaitS)
	r.LostS = p.lostReplacing(meanwhile, p.RemainingS)
	r.DownS += meanwhile.DownS
	// The same work ends later by what waiting and standing still lost.
	r.DelayS = meanwhile.lostWithin(p.SpareWaitS) + p.ReplaceS
	if meanwhile.DelayS+p.RemainingS <= p.SpareWaitS {
		r.DelayS = meanwhile.DelayS // done before there is a node
	}
	return p.inGPUHours(r), meanwhile
}

// lostWithin is how much healthy training a remedy loses in a run of that length.
func (r Remedy) lostWithin(runS float64) float64 {
	return min(runS, r.DownS+r.rate*max(0, runS-r.DownS))
}

func (p Replacement) lostReplacing(meanwhile Remedy, runS float64) float64 {
	if p.Spares > 0 {
		return min(runS, p.ReplaceS)
	}
	waited := min(runS, p.SpareWaitS)
	return min(runS, meanwhile.lostWithin(waited)+min(p.ReplaceS, runS-waited))
}

func (p Replacement) withLoss(r Remedy) Remedy {
	r.Throughput = 1 - r.rate
	r.LostS = r.lostWithin(p.RemainingS)
	r.DelayS = r.DownS + p.RemainingS*(1/r.Throughput-1)
	if r.Throughput <= 0 {
		r.DelayS = math.Inf(1)
	}
	return p.inGPUHours(r)
}

func (p Replacement) inGPUHours(r Remedy) Remedy {
	r.Throughput = 1 - r.rate
	r.LostGPUHours = r.LostS * float64(p.Ranks) / 3600
	gpus := p.Ranks
	if r.Name == RemedyDrop {
		gpus -= p.ReplicaRanks // those that left serve other jobs
	}
	r.DelayGPUHours = r.DelayS * float64(gpus) / 3600
	return r
}

// breakEven is the shortest run for which replacing loses no more than the other remedy. Both
// losses are lines once no rank is stopped, and the replaced job's is flat.
func (p Replacement) breakEven(replace, meanwhile, other Remedy) float64 {
	rate := other.rate
	if !replace.Available || !other.Available || rate <= 0 {
		return math.Inf(1)
	}
	paid := p.ReplaceS
	if p.Spares == 0 {
		paid += meanwhile.lostWithin(p.SpareWaitS)
	}
	at := 0.0
	if paid > other.DownS {
		at = other.DownS + (paid-other.DownS)/rate
	}
	if p.Spares == 0 {
		at = max(at, p.SpareWaitS)
	}
	return at
}
