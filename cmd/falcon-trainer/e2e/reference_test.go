package e2e

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/cmd/falcon-trainer/model"
)

// reference trains the whole model in one loop, sample by sample, in float64:
// no GEMM, no slices, no stages, no micro-batches.
type reference struct {
	shard   model.Shard
	adam    model.Adam
	seed    uint64
	w, g    []float64
	m, v    []float64
	step    int64
	samples int    // per iteration
	next    uint64 // sample
}

func newReference(s model.Shape, seed uint64, rate float64, samples int) *reference {
	sh := model.NewShard(s, falcon.Layout{TP: 1, DP: 1, PP: 1}, 0)
	first := make([]float32, sh.Params())
	sh.Fill(first, seed)
	n := len(first)
	r := &reference{
		shard:   sh,
		adam:    model.NewAdam(rate),
		seed:    seed,
		samples: samples,
		w:       make([]float64, n),
		g:       make([]float64, n),
		m:       make([]float64, n),
		v:       make([]float64, n),
	}
	for i, x := range first {
		r.w[i] = float64(x)
	}
	return r
}

// forward returns the input of every layer, and the answer as the last entry,
// and the rectified units of every layer.
func (r *reference) forward(x []float64) (xs, units [][]float64) {
	h, f := r.shard.Hidden, r.shard.FFN
	xs = append(xs, x)
	for layer := range r.shard.Count {
		at := r.shard.Layer(layer)
		unit := make([]float64, f)
		y := make([]float64, h)
		for u := range f {
			a := r.w[at.B1+u]
			for j := range h {
				a += r.w[at.W1+j*f+u] * x[j]
			}
			unit[u] = max(a, 0)
		}
		for j := range h {
			y[j] = x[j] + r.w[at.B2+j]
			for u := range f {
				y[j] += r.w[at.W2+u*h+j] * unit[u] * unit[u]
			}
		}
		xs = append(xs, y)
		units = append(units, unit)
		x = y
	}
	return xs, units
}

func (r *reference) loss(y, target []float64) float64 {
	sum := 0.0
	for j := range y {
		sum += (y[j] - target[j]) * (y[j] - target[j])
	}
	return sum / float64(len(y))
}

// backward adds the gradient of one sample's loss to r.g.
func (r *reference) backward(xs, units [][]float64, target []float64) {
	h, f := r.shard.Hidden, r.shard.FFN
	dy := make([]float64, h)
	for j := range dy {
		dy[j] = 2 * (xs[len(units)][j] - target[j]) / float64(h)
	}
	for layer := r.shard.Count - 1; layer >= 0; layer-- {
		at, x, unit := r.shard.Layer(layer), xs[layer], units[layer]
		dx := append([]float64(nil), dy...)
		for j := range h {
			r.g[at.B2+j] += dy[j]
		}
		for u := range f {
			da := 0.0
			for j := range h {
				r.g[at.W2+u*h+j] += dy[j] * unit[u] * unit[u]
				da += r.w[at.W2+u*h+j] * dy[j]
			}
			da *= 2 * unit[u]
			r.g[at.B1+u] += da
			for j := range h {
				r.g[at.W1+j*f+u] += da * x[j]
				dx[j] += r.w[at.W1+j*f+u] * da
			}
		}
		dy = dx
	}
}

func (r *reference) sample(index uint64) (x, y []float64) {
	in := make([]float32, r.shard.Hidden)
	out := make([]float32, r.shard.Hidden)
	model.Input(r.seed, index, in)
	model.Target(r.seed, index, out)
	for j := range in {
		x, y = append(x, float64(in[j])), append(y, float64(out[j]))
	}
	return x, y
}

// iterate trains on the next global batch and returns its mean loss before
// the update.
func (r *reference) iterate() float64 {
	clear(r.g)
	total := 0.0
	for range r.samples {
		x, y := r.sample(r.next)
		r.next++
		xs, units := r.forward(x)
		total += r.loss(xs[len(units)], y)
		r.backward(xs, units, y)
	}
	r.step++
	c1, c2 := r.adam.Corrections(r.step)
	for i, g := range r.g {
		g /= float64(r.samples)
		r.m[i] = r.adam.Beta1*r.m[i] + (1-r.adam.Beta1)*g
		r.v[i] = r.adam.Beta2*r.v[i] + (1-r.adam.Beta2)*g*g
		r.w[i] -= r.adam.Rate * r.m[i] * c1 / (math.Sqrt(r.v[i]*c2) + r.adam.Epsilon)
	}
	return total / float64(r.samples)
}

// The gradient of the reference itself is checked against finite differences,
// so that agreement with it means something.
func TestReferenceGradientAgainstFiniteDifferences(t *testing.T) {
	s := model.Shape{
		Hidden: 6,
		FFN:    8,
		Layers: 3,
		Batch:  1,
	}
	r := newReference(s, 5, 1e-3, 1)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range r.w {
		r.w[i] += 0.1 * rng.NormFloat64() // biases away from zero
	}
	x, y := r.sample(0)
	xs, units := r.forward(x)
	r.backward(xs, units, y)
	at := func(i int, d float64) float64 {
		old := r.w[i]
		r.w[i] = old + d
		xs, units := r.forward(x)
		r.w[i] = old
		return r.loss(xs[len(units)], y)
	}
	const d = 1e-5
	for i := range r.w {
		want := (at(i, d) - at(i, -d)) / (2 * d)
		if math.Abs(r.g[i]-want) > 1e-6*(1+math.Abs(want)) {
			t.Fatalf("weight %d: gradient %v, finite difference %v", i, r.g[i], want)
		}
	}
}

func TestReferenceLearns(t *testing.T) {
	r := newReference(
		model.Shape{
			Hidden: 16,
			FFN:    32,
			Layers: 2,
			Batch:  1,
		},
		1,
		5e-3,
		32,
	)
	first := r.iterate()
	last := 0.0
	for range 60 {
		last = r.iterate()
	}
	if last > first/2 {
		t.Errorf("loss %v after 60 iterations from %v", last, first)
	}
}
