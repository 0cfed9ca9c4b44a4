package rivals

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Beast is the setting of the Bayesian change-point model.
type Beast struct {
	Most     int // change points, 0 … Most are equally probable before the data
	Apart    int // least length of a segment
	Chains   int
	Burn     int // steps of a chain that are thrown away
	Samples  int // kept, of a chain
	Thin     int // steps per sample
	Outliers int // single points that may be taken out
}

// DefaultBeast is Rbeast's own setting, but for Apart, which is ours: Rbeast
// documents none for a series without a season.
func DefaultBeast() Beast {
	return Beast{
		Most:     10,
		Apart:    3,
		Chains:   3,
		Burn:     200,
		Samples:  8000,
		Thin:     5,
		Outliers: 10,
	}
}

// ShortBeast has a twelfth of the samples, for tables over many jobs; a test compares
// what the two report.
func ShortBeast() Beast {
	b := DefaultBeast()
	b.Chains, b.Samples = 1, 2000
	return b
}

// Break is a change point of a series.
type Break struct {
	At          int     // first point of the new segment
	Probability float64 // that it is a change point, summed over Apart points
}

// Breaks are the change points of the most probable number of them, in order of
// probability. The same seed gives the same breaks. Of fewer than 4 × Apart points,
// and of equal ones, there are none.
func (b Beast) Breaks(values []float64, seed uint64) []Break {
	if len(values) < 4*b.Apart {
		return nil
	}
	values = b.withoutOutliers(values)
	centre, scale := stat.MeanStdDev(values, nil)
	if scale == 0 || math.IsNaN(scale) || math.IsInf(scale, 0) {
		return nil
	}
	s := newSums(values, centre, scale)
	counts, often := make([]int, b.Most+1), make([]float64, len(values))
	for chain := range b.Chains {
		c := newChain(b, s, rand.New(rand.NewPCG(seed, uint64(chain))))
		c.run(counts, often)
	}
	kept := float64(b.Chains * b.Samples)
	for i := range often {
		often[i] /= kept
	}
	return b.peaks(often, mode(counts))
}

// mode is the index of the greatest count.
func mode(counts []int) int {
	return slices.Index(counts, slices.Max(counts))
}

// peaks are the n points, at least Apart from each other, around which the
// probability is greatest.
func (b Beast) peaks(often []float64, n int) []Break {
	sums := make([]float64, len(often))
	for i := range often {
		for k := max(0, i-b.Apart/2); k <= min(len(often)-1, i+b.Apart/2); k++ {
			sums[i] += often[k]
		}
	}
	var out []Break
	for len(out) < n {
		at := -1
		for i := range sums {
			if sums[i] > 0 &&
				(at < 0 || sums[i] > sums[at] || sums[i] == sums[at] && often[i] > often[at]) {
				at = i
			}
		}
		if at < 0 {
			return out
		}
		out = append(out, Break{At: at, Probability: min(1, sums[at])})
		for k := max(0, at-b.Apart); k <= min(len(sums)-1, at+b.Apart); k++ {
			sums[k] = 0
		}
	}
	return out
}

// outlierSigma is how far from its neighbours a single point is an outlier.
const outlierSigma = 5

// withoutOutliers replaces the furthest single points by the mean of the two before
// or of the two behind, whichever is nearer, so that no step is blurred: a stand-in
// for the model's outlier component.
func (b Beast) withoutOutliers(values []float64) []float64 {
	off, near := make([]float64, len(values)), make([]float64, len(values))
	for i := 2; i+2 < len(values); i++ {
		before, behind := (values[i-2]+values[i-1])/2, (values[i+1]+values[i+2])/2
		near[i] = before
		if math.Abs(values[i]-behind) < math.Abs(values[i]-before) {
			near[i] = behind
		}
		off[i] = math.Abs(values[i] - near[i])
	}
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return -compare(off[x], off[y])
	})
	limit := outlierSigma * 1.4826 * median(slices.Clone(off))
	out := slices.Clone(values)
	for _, i := range order[:min(b.Outliers, len(order))] {
		if off[i] > limit {
			out[i] = near[i]
		}
	}
	return out
}

// sums are running sums of a standardised series: of the values, of the values
// times their index, and of their squares in all.
type sums struct {
	n       int
	y, ty   []float64
	squares float64
}

func newSums(values []float64, centre, scale float64) *sums {
	s := &sums{
		n:  len(values),
		y:  make([]float64, len(values)+1),
		ty: make([]float64, len(values)+1),
	}
	for i, v := range values {
		y := (v - centre) / scale
		s.y[i+1], s.ty[i+1] = s.y[i]+y, s.ty[i]+float64(i)*y
		s.squares += y * y
	}
	return s
}

// piece is a segment: constant where order is 0, a straight line where it is 1.
type piece struct {
	from, to, order int
	level, slope    float64 // inner products of the values with the two basis functions
	// squares is by how much it reduces the sum of squares, and evidence half the
	// logarithm of the ratio of prior to posterior precision of its coefficients.
	squares, evidence float64
}

// fit sets the inner products: with 1, and with the index scaled to mean 0 and
// variance 1 over the segment, so that both have the square norm to−from.
func (s *sums) fit(p piece) piece {
	n := float64(p.to - p.from)
	p.level, p.slope = s.y[p.to]-s.y[p.from], 0
	if p.order == 1 && n > 1 {
		middle := float64(p.from+p.to-1) / 2
		p.slope = (s.ty[p.to] - s.ty[p.from] - middle*p.level) / math.Sqrt((n*n-1)/12)
	}
	return p
}

// weigh sets squares and evidence for a precision of the prior.
func (p piece) weigh(precision float64) piece {
	n := float64(p.to - p.from)
	p.squares = (p.level*p.level + p.slope*p.slope) / (n + precision)
	p.evidence = float64(1+p.order) / 2 * math.Log(precision/(n+precision))
	return p
}

// vague is the shape and rate of the prior of the noise and of the precision.
const vague = 1e-4

// chain is one Markov chain over the segmentations (reversible jump).
type chain struct {
	set       Beast
	sums      *sums
	rng       *rand.Rand
	pieces    []piece
	spare     []piece
	ways      []float64 // logWays by number of change points
	precision float64   // of the coefficients, in units of the noise's
	log       float64   // of the posterior of pieces
}

// firstPrecision is Rbeast's precValue.
const firstPrecision = 1.5

func newChain(b Beast, s *sums, rng *rand.Rand) *chain {
	c := &chain{
		set:       b,
		sums:      s,
		rng:       rng,
		precision: firstPrecision,
	}
	for k := range b.Most + 1 {
		c.ways = append(c.ways, logWays(s.n, k, b.Apart))
	}
	c.pieces = []piece{c.fit(piece{to: s.n})}
	c.log = c.posterior(c.pieces)
	return c
}

func (c *chain) fit(p piece) piece {
	return c.sums.fit(p).weigh(c.precision)
}

// posterior is the logarithm of the probability of a segmentation up to a constant;
// coefficients and noise are integrated out.
func (c *chain) posterior(pieces []piece) float64 {
	left, sum := c.sums.squares, 0.0
	for _, p := range pieces {
		left -= p.squares
		sum += p.evidence
	}
	sum -= (vague + float64(c.sums.n)/2) * math.Log(vague+max(left, 0)/2)
	return sum - c.ways[len(pieces)-1] - float64(len(pieces))*math.Ln2
}

// logWays is the logarithm of how many ways there are to place k change points so
// that no segment of n points is shorter than apart.
func logWays(n, k, apart int) float64 {
	free := n - (k+1)*(apart-1) - 1
	if free < k {
		return math.Inf(1)
	}
	all, _ := math.Lgamma(float64(free + 1))
	some, _ := math.Lgamma(float64(k + 1))
	rest, _ := math.Lgamma(float64(free - k + 1))
	return all - some - rest
}

// run plays a chain and adds its samples to the counts of change points and to how
// often a point was one.
func (c *chain) run(counts []int, often []float64) {
	for range c.set.Burn {
		c.step()
	}
	for range c.set.Samples {
		for range c.set.Thin {
			c.step()
		}
		c.redraw()
		counts[len(c.pieces)-1]++
		for _, p := range c.pieces[1:] {
			often[p.from]++
		}
	}
}

// step proposes one change of the segmentation.
func (c *chain) step() {
	switch u := c.rng.Float64(); {
	case u < 0.25:
		c.birth()
	case u < 0.5:
		c.death()
	case u < 0.6:
		c.splitPoint()
	case u < 0.7:
		c.mergePoints()
	case u < 0.9:
		c.shift()
	default:
		at := c.rng.IntN(len(c.pieces))
		p := c.pieces[at]
		p.order = 1 - p.order
		c.offer(at, at+1, 0, p)
	}
}

// places is how many points may be proposed as a change point.
func (c *chain) places() int {
	return c.sums.n - 2*c.set.Apart + 1
}

func (c *chain) birth() {
	if len(c.pieces) > c.set.Most {
		return
	}
	cut := c.set.Apart + c.rng.IntN(c.places())
	at := slices.IndexFunc(c.pieces, func(p piece) bool { return cut < p.to })
	p := c.pieces[at]
	if cut-p.from < c.set.Apart || p.to-cut < c.set.Apart {
		return
	}
	left := piece{from: p.from, to: cut, order: p.order}
	right := piece{from: cut, to: p.to, order: c.rng.IntN(2)}
	c.offer(at, at+1, c.logPairs(len(c.pieces)), left, right)
}

func (c *chain) death() {
	if len(c.pieces) == 1 {
		return
	}
	at := c.rng.IntN(len(c.pieces) - 1)
	whole := piece{
		from:  c.pieces[at].from,
		to:    c.pieces[at+1].to,
		order: c.pieces[at].order,
	}
	c.offer(at, at+2, -c.logPairs(len(c.pieces)-1), whole)
}

// logPairs is the logarithm of how much likelier the death of one of so many change
// points, order included, is proposed than the birth of it.
func (c *chain) logPairs(points int) float64 {
	return math.Log(2 * float64(c.places()) / float64(points))
}

// reach is by how many points a change point is moved at most.
const reach = 8

func (c *chain) shift() {
	if len(c.pieces) == 1 {
		return
	}
	at := c.rng.IntN(len(c.pieces) - 1)
	by := 1 + c.rng.IntN(reach)
	if c.rng.IntN(2) == 0 {
		by = -by
	}
	left, right := c.pieces[at], c.pieces[at+1]
	left.to, right.from = left.to+by, right.from+by
	if left.to-left.from < c.set.Apart || right.to-right.from < c.set.Apart {
		return
	}
	c.offer(at, at+2, 0, left, right)
}

// splitPoint puts a short piece in the place of a change point, mergePoints a change
// point in the place of a short piece. Without them a chain stays for ever where a
// short steep line leads over a great step.
func (c *chain) splitPoint() {
	if n := len(c.pieces); n == 1 || n > c.set.Most {
		return
	}
	at := c.rng.IntN(len(c.pieces) - 1)
	gap := 1 + c.rng.IntN(2*reach)
	left, right := c.pieces[at], c.pieces[at+1]
	left.to -= c.rng.IntN(gap + 1)
	right.from = left.to + gap
	if gap < c.set.Apart ||
		left.to-left.from < c.set.Apart ||
		right.to-right.from < c.set.Apart {
		return
	}
	middle := piece{from: left.to, to: right.from, order: c.rng.IntN(2)}
	c.offer(at, at+2, math.Log(4*reach), left, middle, right)
}

func (c *chain) mergePoints() {
	if len(c.pieces) < 3 {
		return
	}
	at := c.rng.IntN(len(c.pieces) - 2)
	left, middle, right := c.pieces[at], c.pieces[at+1], c.pieces[at+2]
	gap := middle.to - middle.from
	if gap > 2*reach {
		return
	}
	left.to += c.rng.IntN(gap + 1)
	right.from = left.to
	c.offer(at, at+3, -math.Log(4*reach), left, right)
}

// offer puts pieces in the place of those from … to−1 if they are accepted.
func (c *chain) offer(from, to int, logProposal float64, pieces ...piece) {
	next := append(c.spare[:0], c.pieces[:from]...)
	for _, p := range pieces {
		next = append(next, c.fit(p))
	}
	next = append(next, c.pieces[to:]...)
	c.spare = next
	log := c.posterior(next)
	if math.Log(c.rng.Float64()) < log-c.log+logProposal {
		c.pieces, c.spare, c.log = next, c.pieces, log
	}
}

// redraw draws noise, coefficients and their precision, given the segmentation
// (Rbeast's prior type componentwise).
func (c *chain) redraw() {
	left, terms := c.sums.squares, 0
	for _, p := range c.pieces {
		left -= p.squares
		terms += 1 + p.order
	}
	noise := 1 / c.gamma(vague+float64(c.sums.n)/2, vague+max(left, 0)/2)
	sum := 0.0
	for _, p := range c.pieces {
		weight := float64(p.to-p.from) + c.precision
		for k, product := range [2]float64{p.level, p.slope} {
			if k <= p.order {
				b := product/weight + math.Sqrt(noise/weight)*c.rng.NormFloat64()
				sum += b * b / noise
			}
		}
	}
	c.precision = max(c.gamma(vague+float64(terms)/2, vague+sum/2), 1e-9)
	for i := range c.pieces {
		c.pieces[i] = c.pieces[i].weigh(c.precision)
	}
	c.log = c.posterior(c.pieces)
}

func (c *chain) gamma(shape, rate float64) float64 {
	return distuv.Gamma{Alpha: shape, Beta: rate, Src: c.rng}.Rand()
}
