package topology

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"github.com/failslow/falcon/mitigate/cost"
)

// value is what a placement is judged by. Lower is better, in this order; the
// order of nodes itself decides last.
type value struct {
	ms      float64 // with the best split, without the model's rest
	movedMB float64
	swaps   int
	smooth  float64 // ms for micro-batches that could be cut: tells small steps that ms hides
	unrest  float64 // stages' sums and replicas' times together: tells steps that the slowest one hides
}

// pricer simulates each kind of replica once.
type pricer struct {
	g       *grid
	sim     cost.Simulator
	kinds   map[string]int // replicas that are alike
	ends    [][][]float64  // by kind: ends of stages by micro-batches
	tails   map[string]int
	curves  map[[2]int][]float64 // by kind and tail
	ranges  []bounds             // by replica
	share   int                  // even share of the batch
	total   int
	step    int // micro-batches come in multiples
	counted int

	key   []byte
	pipe  cost.Pipeline
	who   []int
	tail  []float64
	class []class
}

type bounds struct{ lo, hi int }

// class is replicas that are alike, bounds included.
type class struct {
	kind, n int
	bounds
	curve []float64
}

// curveTimes caps a replica's micro-batches at so many even shares.
const curveTimes = 4

func newPricer(g *grid) *pricer {
	p := &pricer{
		g: g, kinds: map[string]int{}, tails: map[string]int{}, curves: map[[2]int][]float64{},
		total: g.p.total(), step: max(int(g.p.Bounds.Multiple), 1), who: make([]int, g.n),
		tail: make([]float64, g.p.Model.Layout.PP),
	}
	dp := g.p.Model.Layout.DP
	p.share = (p.total + dp - 1) / dp
	most := max(curveTimes*p.share, int(slices.Max(g.p.MicroBatches)))
	for d := range dp {
		lo, hi := g.p.Bounds.of(d, p.total)
		p.ranges = append(p.ranges, bounds{lo, max(lo, min(hi, most, p.total-(dp-1))/p.step*p.step)})
	}
	return p
}

// price judges odd nodes at the blocks at.
func (p *pricer) price(at []int) value {
	p.counted++
	p.look(at)
	order := p.g.arrange(at)
	out := value{ms: p.makespan(), smooth: p.smooth(), swaps: len(p.g.swaps(order)), unrest: sum(p.tail)}
	for _, c := range p.class {
		out.unrest += c.curve[min(p.share, len(c.curve)-1)] * float64(c.n) / float64(len(p.ranges))
	}
	for b, node := range order {
		if b != node {
			out.movedMB += p.g.stateMB[b]
		}
	}
	return out
}

// look finds the classes of replicas.
func (p *pricer) look(at []int) {
	for b := range p.who {
		p.who[b] = -1
	}
	for i, b := range at {
		p.who[b] = i
	}
	p.key = p.key[:0]
	for s := range p.tail {
		p.tail[s] = p.g.ringMs(s, p.who)
		p.key = binary.LittleEndian.AppendUint64(p.key, math.Float64bits(p.tail[s]))
	}
	tail, ok := p.tails[string(p.key)]
	if !ok {
		tail = len(p.tails)
		p.tails[string(p.key)] = tail
	}
	p.class = p.class[:0]
	for d, r := range p.ranges {
		p.join(p.kind(d), r)
	}
	for i := range p.class {
		p.class[i].curve = p.curve(p.class[i].kind, tail)
	}
}

func (p *pricer) join(kind int, r bounds) {
	for i := range p.class {
		if p.class[i].kind == kind && p.class[i].bounds == r {
			p.class[i].n++
			return
		}
	}
	p.class = append(p.class, class{kind: kind, n: 1, bounds: r})
}

// kind names replica d's pipeline.
func (p *pricer) kind(d int) int {
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
		most := 0
		for _, r := range p.ranges {
			most = max(most, r.hi)
		}
		p.ends = append(p.ends, p.sim.EndsUpTo(p.pipe, most))
	}
	return k
}

func (p *pricer) curve(kind, tail int) []float64 {
	key := [2]int{kind, tail}
	c, ok := p.curves[key]
	if !ok {
		c = cost.CurveOf(p.ends[kind], p.tail)
		p.curves[key] = c
	}
	return c
}

// cap is the most that one of class c does within ms, never under its least.
func (p *pricer) cap(c *class, ms float64) int {
	k := sort.Search(c.hi, func(m int) bool { return c.curve[m+1] > ms })
	return max(c.lo, k/p.step*p.step)
}

func (p *pricer) does(ms float64) bool {
	left := p.total
	for i := range p.class {
		left -= p.class[i].n * p.cap(&p.class[i], ms)
	}
	return left <= 0
}

// makespan is the least time within which the replicas do the batch: one of
// the values of their curves, and at least that of each one's least.
func (p *pricer) makespan() float64 {
	floor, best := 0.0, math.Inf(1)
	for i := range p.class {
		floor = max(floor, p.class[i].curve[p.class[i].lo])
	}
	if p.does(floor) {
		return floor
	}
	for i := range p.class {
		c := &p.class[i]
		steps := (c.hi - c.lo) / p.step
		k := sort.Search(steps, func(k int) bool {
			v := c.curve[c.lo+(k+1)*p.step]
			return v >= best || v >= floor && p.does(v)
		})
		if k < steps {
			best = min(best, c.curve[c.lo+(k+1)*p.step])
		}
	}
	return best
}

// smoothSteps halve the range of smooth to a thousandth of a millionth.
const smoothSteps = 30

// smooth is the makespan if micro-batches could be cut.
func (p *pricer) smooth() float64 {
	low, high := 0.0, 0.0
	for i := range p.class {
		c := &p.class[i]
		low, high = max(low, c.curve[c.lo]), max(high, c.curve[c.hi])
	}
	for range smoothSteps {
		mid := (low + high) / 2
		if p.parts(mid) < float64(p.total) {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

func (p *pricer) parts(ms float64) float64 {
	all := 0.0
	for i := range p.class {
		c := &p.class[i]
		k := sort.Search(c.hi, func(m int) bool { return c.curve[m+1] > ms })
		f := float64(k)
		if k < c.hi && c.curve[k+1] > c.curve[k] {
			f += (ms - c.curve[k]) / (c.curve[k+1] - c.curve[k])
		}
		all += float64(c.n) * max(float64(c.lo), f)
	}
	return all
}

// split is the best split at the odd nodes' places, by replica: the replica
// whose next step ends soonest gets it; ties go to the one with fewer, then to
// the lower index, as microbatch.SolveCurves does.
func (p *pricer) split(at []int) []int32 {
	p.look(at)
	curves := make([][]float64, len(p.ranges))
	m, left := make([]int, len(curves)), p.total
	for d := range curves {
		k := p.kind(d)
		for i := range p.class {
			if p.class[i].kind == k {
				curves[d] = p.class[i].curve
			}
		}
		m[d] = p.ranges[d].lo
		left -= m[d]
	}
	for ; left > 0; left -= p.step {
		next := -1
		for d, c := range curves {
			if m[d]+p.step > p.ranges[d].hi {
				continue
			}
			if next < 0 || c[m[d]+p.step] < curves[next][m[next]+p.step] ||
				c[m[d]+p.step] == curves[next][m[next]+p.step] && m[d] < m[next] {
				next = d
			}
		}
		if next < 0 {
			break
		}
		m[next] += p.step
	}
	out := make([]int32, len(m))
	for d := range m {
		out[d] = int32(m[d])
	}
	return out
}
