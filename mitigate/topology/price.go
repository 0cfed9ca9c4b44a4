package topology

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"github.com/failslow/falcon/mitigate/cost"
)

// value judges a placement: lower is better, in this order, then the order of nodes.
type value struct {
	ms      float64 // with the best split, without the model's rest
	movedMB float64
	swaps   int
	smooth  float64 // ms for micro-batches that could be cut: shows small steps that ms hides
	unrest  float64 // stages' sums and replicas' times together: shows steps that the slowest one hides
}

// pricer simulates each kind of replica once; what a placement leaves alone counts as healthy.
type pricer struct {
	g      *grid
	sim    cost.Simulator
	kinds  map[string]int // replicas that are alike
	ends   [][][]float64  // by kind: ends of stages by micro-batches
	tails  map[string]int
	curves map[[2]int][]float64 // by kind and tail
	ranges []bounds             // by replica
	plain  []int                // by replica: its kind with healthy nodes only
	calm   []float64            // by stage: its ring with healthy links only
	share  int                  // even share of the batch
	most   int                  // micro-batches up to which kinds are simulated
	total  int
	step   int // micro-batches come in multiples
	priced int // placements
	spent  int // classes and replicas looked at in all

	key     []byte
	pipe    cost.Pipeline
	who     []int // by block: the odd node on it, or −1
	touched []bool
	visited []bool
	tail    []float64
	class   []class
	place   map[classKey]int // in class
	rest    []class          // class with healthy nodes only
}

type bounds struct{ lo, hi int }

type classKey struct {
	kind int
	bounds
}

// class is replicas that are alike, bounds included.
type class struct {
	classKey
	n     int
	curve []float64
}

// curveTimes caps a replica's micro-batches at so many even shares.
const curveTimes = 4

func newPricer(g *grid) *pricer {
	l := g.p.Model.Layout
	p := &pricer{
		g:       g,
		kinds:   map[string]int{},
		tails:   map[string]int{},
		curves:  map[[2]int][]float64{},
		place:   map[classKey]int{},
		total:   g.p.totalCount(),
		step:    max(int(g.p.Bounds.Multiple), 1),
		who:     make([]int, g.n),
		touched: make([]bool, l.DP),
		visited: make([]bool, len(g.odd)),
		tail:    make([]float64, l.PP),
		calm:    make([]float64, l.PP),
	}
	p.share = (p.total + l.DP - 1) / l.DP
	p.limitReplicas()
	for b := range p.who {
		p.who[b] = -1
	}
	for s := range p.calm {
		p.calm[s] = g.ringTime(s, p.who)
	}
	for d := range p.ranges {
		p.plain = append(p.plain, p.pipelineKind(d))
		p.addReplicas(d, p.plain[d], 1)
	}
	p.rest = slices.Clone(p.class)
	return p
}

// limitReplicas bounds replicas: by the problem, and even shares by curveTimes where they fit.
func (p *pricer) limitReplicas() {
	dp := p.g.p.Model.Layout.DP
	room := p.total - (dp - 1)
	for _, most := range []int{max(curveTimes*p.share, int(slices.Max(p.g.p.MicroBatches))), room} {
		p.ranges = p.ranges[:0]
		p.most = 0
		all := 0
		for d := range dp {
			lo, hi := p.g.p.Bounds.rangeOf(d, p.total)
			hi = max(lo, min(hi, most, room)/p.step*p.step)
			p.ranges = append(p.ranges, bounds{lo, hi})
			p.most = max(p.most, hi)
			all += hi
		}
		if all >= p.total {
			return
		}
	}
}

// pricePlaces judges odd nodes at the blocks at.
func (p *pricer) pricePlaces(at []int) value {
	p.priced++
	p.classifyReplicas(at)
	out := value{smooth: p.fractionalTime()}
	out.ms = p.makespan(out.smooth)
	out.movedMB, out.swaps = p.movedState(at)
	out.unrest = sumCounts(p.tail)
	for i := range p.class {
		c := &p.class[i]
		out.unrest += c.curve[min(p.share, len(c.curve)-1)] * float64(c.n) / float64(len(p.ranges))
	}
	p.spent += priceSpends + len(p.class)
	return out
}

// classifyReplicas finds the classes of replicas.
func (p *pricer) classifyReplicas(at []int) {
	for b := range p.who {
		p.who[b] = -1
	}
	for i, b := range at {
		p.who[b] = i
	}
	tail := p.gradientTail(at)
	clear(p.place)
	p.class = append(p.class[:0], p.rest...)
	for i := range p.class {
		p.place[p.class[i].classKey] = i
	}
	for _, b := range at {
		for _, d := range p.g.members[b] {
			if !p.touched[d] {
				p.touched[d] = true
				p.addReplicas(d, p.plain[d], -1)
				p.addReplicas(d, p.pipelineKind(d), 1)
				p.spent++
			}
		}
	}
	for _, b := range at {
		for _, d := range p.g.members[b] {
			p.touched[d] = false
		}
	}
	p.class = slices.DeleteFunc(p.class, func(c class) bool { return c.n == 0 })
	clear(p.place)
	for i := range p.class {
		p.place[p.class[i].classKey] = i
		p.class[i].curve = p.curveOf(p.class[i].kind, tail)
	}
}

// gradientTail sums the gradients of each stage and names what came of it. A ring
// differs only where two ends of slow links are on its stage.
func (p *pricer) gradientTail(at []int) int {
	copy(p.tail, p.calm)
	p.key = p.key[:0]
	for s := range p.tail {
		ends := 0
		for i, b := range at {
			if p.g.linked[i] && slices.Contains(p.g.stages[b], s) {
				ends++
			}
		}
		if ends > 1 {
			p.tail[s] = p.g.ringTime(s, p.who)
		}
		p.key = binary.LittleEndian.AppendUint64(p.key, math.Float64bits(p.tail[s]))
	}
	tail, ok := p.tails[string(p.key)]
	if !ok {
		tail = len(p.tails)
		p.tails[string(p.key)] = tail
	}
	return tail
}

// addReplicas counts n more replicas like d.
func (p *pricer) addReplicas(d, kind, n int) {
	key := classKey{kind, p.ranges[d]}
	i, ok := p.place[key]
	if !ok {
		i = len(p.class)
		p.place[key] = i
		p.class = append(p.class, class{classKey: key})
	}
	p.class[i].n += n
}

// movedState is the state that changes nodes and the swaps that it takes: each cycle
// of nodes takes one less than it has. See grid.arrange for the cycles.
func (p *pricer) movedState(at []int) (mb float64, swaps int) {
	clear(p.visited)
	for i, home := range p.g.odd {
		if p.who[home] < 0 && at[i] != home { // the first of a chain, which one that is not odd closes
			m, n := p.followCycle(at, i)
			mb = mb + m + p.g.stateMB[home]
			swaps += n
		}
	}
	for i, home := range p.g.odd {
		if !p.visited[i] && at[i] != home { // odd nodes among themselves
			m, n := p.followCycle(at, i)
			mb += m
			swaps = swaps + n - 1
		}
	}
	return mb, swaps
}

// followCycle goes from an odd node to the one that it displaced.
func (p *pricer) followCycle(at []int, i int) (mb float64, n int) {
	for ; i >= 0 && !p.visited[i]; i = p.g.oddAt[at[i]] {
		p.visited[i] = true
		mb += p.g.stateMB[at[i]]
		n++
	}
	return mb, n
}

// pipelineKind names replica d's pipeline.
func (p *pricer) pipelineKind(d int) int {
	p.g.pipeline(d, p.who, &p.pipe)
	p.key = p.key[:0]
	for _, s := range p.pipe.Stages {
		p.key = binary.LittleEndian.AppendUint64(p.key, math.Float64bits(s.ForwardMs))
		p.key = binary.LittleEndian.AppendUint64(p.key, math.Float64bits(s.BackwardMs))
	}
	for _, h := range p.pipe.HopMs {
		p.key = binary.LittleEndian.AppendUint64(p.key, math.Float64bits(h))
	}
	k, ok := p.kinds[string(p.key)]
	if !ok {
		k = len(p.ends)
		p.kinds[string(p.key)] = k
		p.ends = append(p.ends, p.sim.EndsUpTo(p.pipe, p.most))
		p.spent += kindSpends
	}
	return k
}

// What pricing a placement and one more kind of replica cost, in classes and replicas looked at.
const (
	priceSpends = 10
	kindSpends  = 100
)

func (p *pricer) curveOf(kind, tail int) []float64 {
	key := [2]int{kind, tail}
	c, ok := p.curves[key]
	if !ok {
		c = cost.CurveOf(p.ends[kind], p.tail)
		p.curves[key] = c
	}
	return c
}

// capWithin is the most that one of class c does within ms, never under its least.
func (p *pricer) capWithin(c *class, ms float64) int {
	k := sort.Search(c.hi, func(m int) bool { return c.curve[m+1] > ms })
	return max(c.lo, k/p.step*p.step)
}

func (p *pricer) countWithin(ms float64) bool {
	return p.totalWithin(ms) >= p.total
}

// totalWithin is what all do within ms together.
func (p *pricer) totalWithin(ms float64) int {
	all := 0
	for i := range p.class {
		all += p.class[i].n * p.capWithin(&p.class[i], ms)
	}
	return all
}

// timeToFill is about the longest time, up to most, in which the replicas do at most the batch.
func (p *pricer) timeToFill(most float64) float64 {
	low, high := 0.0, most
	for range smoothSteps {
		if mid := (low + high) / 2; p.totalWithin(mid) <= p.total {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// makespan is the least time within which the replicas do the batch: one of the
// values of their curves. It looks from a time on that is about right.
func (p *pricer) makespan(from float64) float64 {
	low, high := 0.0, 0.0
	for i := range p.class {
		c := &p.class[i]
		low = max(low, c.curve[c.lo])
		high = max(high, c.curve[c.hi])
	}
	if p.countWithin(low) {
		return low
	}
	if near := from * (1 - relTol); near > low && p.countWithin(near) {
		high = near // from was found to a finite precision
	} else {
		low = max(low, near)
	}
	for range smoothSteps {
		if mid := (low + high) / 2; p.countWithin(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	for {
		next := p.nextValue(low)
		if math.IsInf(next, 1) || p.countWithin(next) {
			return next
		}
		low = next
	}
}

// nextValue is the least value of the curves above ms.
func (p *pricer) nextValue(ms float64) float64 {
	least := math.Inf(1)
	for i := range p.class {
		c := &p.class[i]
		if m := p.capWithin(c, ms) + p.step; m <= c.hi && c.curve[m] > ms {
			least = min(least, c.curve[m])
		}
	}
	return least
}

// smoothSteps halve a range to a thousandth of a millionth.
const smoothSteps = 30

// fractionalTime is the makespan if micro-batches could be cut.
func (p *pricer) fractionalTime() float64 {
	low, high := 0.0, 0.0
	for i := range p.class {
		c := &p.class[i]
		low = max(low, c.curve[c.lo])
		high = max(high, c.curve[c.hi])
	}
	for range smoothSteps {
		mid := (low + high) / 2
		if p.splitParts(mid) < float64(p.total) {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

func (p *pricer) splitParts(ms float64) float64 {
	all := 0.0
	for i := range p.class {
		c := &p.class[i]
		k := sort.Search(c.hi, func(m int) bool {
			return c.curve[m+1] > ms
		})
		f := float64(k)
		if k < c.hi && c.curve[k+1] > c.curve[k] {
			f += (ms - c.curve[k]) / (c.curve[k+1] - c.curve[k])
		}
		all += float64(c.n) * max(float64(c.lo), f)
	}
	return all
}

// bestSplit is the best split at the odd nodes' places, by replica: the one whose next step ends
// soonest gets it, ties go to fewer, then to the lower index, as in microbatch.SolveCurves. What
// ends within a time that the batch fills is given at once.
func (p *pricer) bestSplit(at []int) []int32 {
	full := p.timeToFill(p.pricePlaces(at).ms)
	curves := make([][]float64, len(p.ranges))
	m := make([]int, len(curves))
	left := p.total
	for d, r := range p.ranges {
		i := p.place[classKey{p.pipelineKind(d), r}]
		curves[d] = p.class[i].curve
		m[d] = p.capWithin(&p.class[i], full)
		left -= m[d]
	}
	for ; left > 0; left -= p.step {
		next := -1
		for d, c := range curves {
			k := m[d] + p.step
			if k <= p.ranges[d].hi &&
				(next < 0 ||
					cmp.Or(cmp.Compare(c[k], curves[next][m[next]+p.step]), cmp.Compare(m[d], m[next])) < 0) {
				next = d
			}
		}
		m[next] += p.step
	}
	out := make([]int32, len(m))
	for d := range m {
		out[d] = int32(m[d])
	}
	return out
}
