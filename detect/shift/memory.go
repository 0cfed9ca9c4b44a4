package shift

import "math"

// memory stores hours of the current level in a fixed number of blocks, which get
// longer with it.
type memory struct {
	blocks [memoryKept]float64
	n      int     // complete blocks
	each   int     // short blocks per block
	sum    float64 // of the incomplete block
	part   int
}

const (
	memoryKept  = 64
	memoryFirst = 4   // short blocks per block at first: 32 points
	driftFloor  = 1.5 // a drift must be this many times Floor
)

func (m *memory) reset() {
	*m = memory{}
}

// add adds a short block. If the memory is full, blocks are merged in pairs.
func (m *memory) add(level float64, _ int) {
	if m.each == 0 {
		m.each = memoryFirst
	}
	m.sum += level
	if m.part++; m.part < m.each {
		return
	}
	if m.n == memoryKept {
		for i := range memoryKept / 2 {
			m.blocks[i] = (m.blocks[2*i] + m.blocks[2*i+1]) / 2
		}
		m.n = memoryKept / 2
		m.each = 2 * m.each
		return // the block continues
	}
	m.blocks[m.n] = m.sum / float64(m.part)
	m.n++
	m.sum, m.part = 0, 0
}

// lookBackward looks for a drift: a span in which the level moved in one direction
// by more than random steps of the same size explain. Long steps average the noise,
// many steps measure their spread better.
func (w *Watch) lookBackward() (Change, bool) {
	m := &w.slow
	if w.next%blockOf != 0 || m.part != 0 {
		return Change{}, false
	}
	for _, steps := range driftSteps {
		for each := 1; (steps+1)*each <= m.n; each += max(each/4, 1) {
			levels := m.lastLevels(steps+1, each)
			before, after := levels[0], levels[steps]
			off := math.Abs(after - before)
			if off < driftFloor*w.cfg.Floor+w.resolution() ||
				off < wandering(levels, w.cfg.Rate) {
				continue
			}
			index := max(w.next-(steps+1)*each*m.each*blockOf/2, w.from)
			return Change{
				Index:  index,
				Before: msOf(before),
				After:  msOf(after),
				Points: w.next - index,
				Drift:  true,
			}, true
		}
	}
	return Change{}, false
}

// driftSteps are the numbers of steps of a drift.
var driftSteps = [...]int{8, 16}

// lastLevels returns n levels, each of the next each blocks, up to the newest.
func (m *memory) lastLevels(n, each int) []float64 {
	out := make([]float64, n)
	for i := range out {
		first := m.n - (n-i)*each
		for _, b := range m.blocks[first : first+each] {
			out[i] += b / float64(each)
		}
	}
	return out
}

// wandering is the distance that random steps exceed with probability p. Noise that
// averages out moves less.
func wandering(levels []float64, p float64) float64 {
	steps := len(levels) - 1
	each := (levels[steps] - levels[0]) / float64(steps)
	square := 0.0
	for i := range steps {
		d := levels[i+1] - levels[i] - each
		square += d * d
	}
	spread := math.Sqrt(square / float64(steps-1))
	return spread * math.Sqrt(float64(steps)) * studentQuantile(steps-1, p)
}
