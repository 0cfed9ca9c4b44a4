package topology

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/cost"
)

// Sentinel errors; each is wrapped with the reason.
var (
	ErrNoGain  = errors.New("topology: no other placement is worth it")
	ErrShape   = errors.New("topology: the nodes don't hold equal blocks of ranks")
	ErrProblem = errors.New("topology: bad problem")
)

// relTol is the share below which two times are the same.
const relTol = 1e-9

// Bounds are what a replica's number of micro-batches must keep to: memory
// limits, and multiples of the stages where they are interleaved.
type Bounds struct {
	Min, Max []int32 // by replica; nil = 1 and no limit
	Multiple int32   // of all; 0 = 1
}

// Problem is one job, and where its ranks are now.
type Problem struct {
	Model        cost.Model
	Now          falcon.Placement // device by rank
	MicroBatches []int32          // by replica, now
	Bounds       Bounds           // on splits behind the swap
	// by rank: parameters, optimizer, 10⁶ bytes; nil = unknown, blocks count alike
	StateMB []float64
	CopyMBs float64 // device to host and back, 10⁶ bytes/s; 0 = no time
	MinGain float64 // share of the present time; plans that gain less are refused
}

// Plan is a placement that is worth it.
type Plan struct {
	Placement    falcon.Placement // device by rank, afterwards
	Blocks       []int32          // the processes that hold block b take Blocks[b] over
	MicroBatches []int32          // the best split there, by replica
	Order        []falcon.Node    // node by block, afterwards

	BeforeMs      float64 // now, with the present split
	BeforeSplitMs float64 // now, with the best split: what S2 alone would bring
	AfterMs       float64 // afterwards, with the present split
	AfterSplitMs  float64 // afterwards, with MicroBatches

	Preview   falcon.Preview
	Exact     bool // no placement is better by the model
	Evaluated int  // placements that were priced
}

// GainMs is what the plan saves over the better of waiting and S2 alone, both with best splits.
func (p Plan) GainMs() float64 {
	return min(p.BeforeMs, p.BeforeSplitMs) - p.AfterSplitMs
}

// Search finds the best placement, or returns why the present one stays:
// ErrNoGain, ErrShape where nodes hold unequal blocks or a tensor-parallel
// group leaves its node, ErrProblem for numbers that make no sense.
func Search(p Problem) (Plan, error) {
	if err := p.validate(); err != nil {
		return Plan{}, err
	}
	nodes, err := p.searchNodes()
	if err != nil && !errors.Is(err, ErrNoGain) && !errors.Is(err, ErrShape) {
		return Plan{}, err
	}
	groups, groupsErr := p.searchGroups(nodes, err)
	if groupsErr == nil || errors.Is(err, ErrShape) && errors.Is(groupsErr, ErrNoGain) {
		return groups, groupsErr
	}
	return nodes, err
}

// searchGroups finds an exchange of single groups that gains more than the best of whole
// nodes, by the least gain asked for at least.
func (p Problem) searchGroups(nodes Plan, err error) (Plan, error) {
	x, shape := newExchange(p)
	if shape != nil {
		return Plan{}, shape
	}
	before := p.Model.Iteration(p.Now, p.MicroBatches).IterationMs
	least := max(p.MinGain, relTol) * before
	switch n := len(p.Now.Nodes()); {
	case n == len(x.nodes):
		return Plan{}, fmt.Errorf("%w: every node holds one group", ErrShape)
	case n < 2 || !p.hasSlow():
		return Plan{}, fmt.Errorf("%w: no node and no link is slow", ErrNoGain)
	case err == nil && nodes.AfterSplitMs-p.healthyMs() < least:
		return Plan{}, fmt.Errorf("%w: as fast as if nothing were slow", ErrNoGain)
	}
	x.run()
	plan := x.makePlan()
	switch small := requireGain(plan, least, before); {
	case small != nil:
		return Plan{}, small
	case err == nil && nodes.AfterSplitMs-plan.AfterSplitMs < least:
		return Plan{}, fmt.Errorf("%w: whole nodes do as well", ErrNoGain)
	}
	return plan, nil
}

// slowLinks are the slow links between nodes of the job, ascending.
func (p Problem) slowLinks() []falcon.Link {
	nodes := p.Now.Nodes()
	var out []falcon.Link
	for l, ratio := range p.Model.Links.Ratio {
		if ratio > 1 &&
			l.A != l.B &&
			slices.Contains(nodes, l.A) &&
			slices.Contains(nodes, l.B) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, compareLinks)
	return out
}

// hasSlow reports whether a device or a link that the job uses is slow.
func (p Problem) hasSlow() bool {
	return len(p.slowLinks()) > 0 ||
		slices.ContainsFunc(p.Now, func(d falcon.Device) bool {
			return p.Model.Slow[d] > 1
		})
}

// stateOf is the state of the nth block of size ranks; where it is not known, blocks count alike.
func (p Problem) stateOf(n, size int) float64 {
	if p.StateMB == nil {
		return float64(size)
	}
	return sumCounts(p.StateMB[n*size : (n+1)*size])
}

// requireGain is why a plan is not worth it: it saves less than least of the time before.
func requireGain(plan Plan, least, before float64) error {
	if gain := plan.GainMs(); gain < least {
		return fmt.Errorf("%w: the best saves %.1f ms of %.1f ms", ErrNoGain, max(gain, 0), before)
	}
	return nil
}

// healthyMs is what an iteration would take at the present places if nothing were slow.
func (p Problem) healthyMs() float64 {
	m := p.Model
	m.Slow, m.Links.Ratio = nil, nil
	return m.Iteration(p.Now, p.MicroBatches).IterationMs
}

// searchNodes finds the best order of the nodes.
func (p Problem) searchNodes() (Plan, error) {
	g, err := newGrid(p)
	if err != nil {
		return Plan{}, err
	}
	if g.n < 2 {
		return Plan{}, fmt.Errorf("%w: the job runs on one node", ErrNoGain)
	}
	if len(g.odd) == 0 {
		return Plan{}, fmt.Errorf("%w: no node and no link is slow", ErrNoGain)
	}
	s := newSearch(g)
	s.runFromHome()
	plan := g.makePlan(s)
	plan.BeforeSplitMs = s.pricePlaces(g.homeBlocks()).ms + p.Model.RestMs
	if small := requireGain(plan, max(p.MinGain, relTol)*plan.BeforeMs, plan.BeforeMs); small != nil {
		return Plan{}, small
	}
	return plan, nil
}

func (p Problem) validate() error {
	l := p.Model.Layout
	if err := l.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrProblem, err)
	}
	switch {
	case len(p.Now) != l.World():
		return fmt.Errorf("%w: %d ranks are placed, %v has %d", ErrProblem, len(p.Now), l, l.World())
	case len(p.Model.Work) != l.PP || len(p.Model.DPMB) != l.PP:
		return fmt.Errorf("%w: the model has %d stages' work and %d stages' payload, %v has %d stages",
			ErrProblem, len(p.Model.Work), len(p.Model.DPMB), l, l.PP)
	case len(p.MicroBatches) != l.DP || slices.Min(p.MicroBatches) < 1:
		return fmt.Errorf("%w: micro-batches %v for %d replicas; give at least 1 for each",
			ErrProblem, p.MicroBatches, l.DP)
	case p.StateMB != nil && len(p.StateMB) != l.World():
		return fmt.Errorf("%w: the state of %d ranks is given, there are %d",
			ErrProblem, len(p.StateMB), l.World())
	case p.totalCount() > totalMost:
		return fmt.Errorf("%w: the batch has more than %d micro-batches", ErrProblem, totalMost)
	}
	for s, w := range p.Model.Work {
		if !isFinite(w.ForwardMs) ||
			!isFinite(w.BackwardMs) ||
			!isFinite(p.Model.DPMB[s]) {
			return fmt.Errorf(
				"%w: stage %d takes %v and %v ms and reduces %v MB; give numbers that are not negative",
				ErrProblem, s, w.ForwardMs, w.BackwardMs, p.Model.DPMB[s],
			)
		}
	}
	for _, d := range p.Now {
		if f := p.Model.Slow[d]; !isFinite(f) {
			return fmt.Errorf("%w: %s is slow by a factor of %v; give a number of at least 1",
				ErrProblem, d, f)
		}
	}
	for l, f := range p.Model.Links.Ratio {
		if !isFinite(f) {
			return fmt.Errorf("%w: link %v is slow by a factor of %v; give a number of at least 1",
				ErrProblem, l, f)
		}
	}
	return p.Bounds.validate(l.DP, p.totalCount())
}

// totalMost bounds the micro-batches in a batch, so that curves stay small.
const totalMost = 1 << 16

func (p Problem) totalCount() int {
	t := 0
	for _, m := range p.MicroBatches {
		t += int(m)
	}
	return t
}

func isFinite(v float64) bool {
	return v >= 0 && !math.IsInf(v, 0)
}

func (b Bounds) validate(replicas, total int) error {
	least, most := 0, 0
	for d := range replicas {
		lo, hi := b.rangeOf(d, total)
		if lo > hi {
			return fmt.Errorf("%w: replica %d has no number of micro-batches within its bounds",
				ErrProblem, d)
		}
		least += lo
		most += hi
	}
	switch q := max(int(b.Multiple), 1); {
	case b.Min != nil && len(b.Min) != replicas, b.Max != nil && len(b.Max) != replicas:
		return fmt.Errorf("%w: bounds of %d and %d replicas, there are %d",
			ErrProblem, len(b.Min), len(b.Max), replicas)
	case least > total || most < total || total%q != 0:
		return fmt.Errorf("%w: the bounds allow %d to %d micro-batches in steps of %d, the batch has %d",
			ErrProblem, least, most, q, total)
	}
	return nil
}

// rangeOf is the range of replica d, rounded inwards to multiples.
func (b Bounds) rangeOf(d, total int) (lo, hi int) {
	q := max(int(b.Multiple), 1)
	lo, hi = 1, total
	if d < len(b.Min) {
		lo = max(lo, int(b.Min[d]))
	}
	if d < len(b.Max) {
		hi = min(hi, int(b.Max[d]))
	}
	return (lo + q - 1) / q * q, hi / q * q
}
