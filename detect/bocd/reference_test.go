package bocd

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// reference is BOCD as written down (FALCON §9.1, eqs. 3–5), with nothing
// clever: the joint of every run length in logs, the predictive as a Student-t
// of 2α degrees of freedom at μ with scale² β(κ+1)/(ακ), and the sufficient
// statistics of each run worked out afresh from its observations.
type reference struct {
	prior  Prior
	hazard float64
	xs     []float64
	joint  []float64 // log P(r, x)
}

func (f *reference) observe(x float64) []float64 {
	if f.joint == nil {
		f.joint = []float64{0}
	}
	next := make([]float64, len(f.joint)+1)
	var change []float64
	for r, j := range f.joint {
		pred := studentT(f.posterior(r), x)
		next[r+1] = j + pred + math.Log(1-f.hazard)
		change = append(change, j+pred+math.Log(f.hazard))
	}
	next[0] = logSum(change)
	total := logSum(next)
	out := make([]float64, len(next))
	for i := range next {
		next[i] -= total
		out[i] = math.Exp(next[i])
	}
	f.joint = next
	f.xs = append(f.xs, x)
	return out
}

// posterior is the Normal-Gamma posterior of the newest r observations.
func (f *reference) posterior(r int) Prior {
	p := f.prior
	for _, x := range f.xs[len(f.xs)-r:] {
		p.Beta += p.Kappa * (x - p.Mu) * (x - p.Mu) / (2 * (p.Kappa + 1))
		p.Mu = (p.Kappa*p.Mu + x) / (p.Kappa + 1)
		p.Kappa++
		p.Alpha += 0.5
	}
	return p
}

func studentT(p Prior, x float64) float64 {
	nu := 2 * p.Alpha
	scale2 := p.Beta * (p.Kappa + 1) / (p.Alpha * p.Kappa)
	hi, _ := math.Lgamma((nu + 1) / 2)
	lo, _ := math.Lgamma(nu / 2)
	z2 := (x - p.Mu) * (x - p.Mu) / scale2
	return hi - lo - 0.5*math.Log(nu*math.Pi*scale2) - (nu+1)/2*math.Log1p(z2/nu)
}

func logSum(xs []float64) float64 {
	top := math.Inf(-1)
	sum := 0.0
	for _, x := range xs {
		top = max(top, x)
	}
	for _, x := range xs {
		sum += math.Exp(x - top)
	}
	return top + math.Log(sum)
}

// series makes a random one with level changes, spikes and its own noise.
func series(rng *rand.Rand, n int) []float64 {
	xs := make([]float64, n)
	level := rng.NormFloat64()
	noise := math.Exp(rng.NormFloat64())
	for i := range xs {
		if rng.Float64() < 0.02 {
			level += 10 * rng.NormFloat64()
		}
		xs[i] = level + noise*rng.NormFloat64()
		if rng.Float64() < 0.01 {
			xs[i] += 100 * rng.NormFloat64()
		}
	}
	return xs
}

func TestFilterEqualsReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	worst := 0.0
	for trial := range 40 {
		prior := UnitPrior
		if trial%2 == 1 {
			prior = Prior{
				Mu:    rng.NormFloat64(),
				Kappa: rng.ExpFloat64() + 0.01,
				Alpha: rng.ExpFloat64() + 0.1,
				Beta:  rng.ExpFloat64() + 0.1,
			}
		}
		hazard := 1 / (2 + 500*rng.Float64())
		f := New(Config{RunLength: 1 / hazard, Prior: prior})
		ref := reference{prior: prior, hazard: hazard}
		for i, x := range series(rng, 150) {
			s, err := f.Observe(x)
			if err != nil {
				t.Fatal(err)
			}
			want := ref.observe(x)
			got := f.Posterior(nil)
			l1 := 0.0
			recent := 0.0
			for r := range want {
				l1 += math.Abs(want[r] - got[r])
				if r <= DefaultWindow {
					recent += want[r]
				}
			}
			worst = max(worst, l1)
			if l1 > 1e-9 || math.Abs(recent-s.PRecent) > 1e-9 {
				t.Fatalf("trial %d, x[%d]: L1 %g, P(r≤w) %g against %g", trial, i, l1, s.PRecent, recent)
			}
		}
	}
	t.Logf("largest L1 distance in a step: %.1e", worst)
}

// TestLongRunsUseTheSeries compares the constants of runs beyond the table
// with the gamma function itself.
func TestLongRunsUseTheSeries(t *testing.T) {
	for _, r := range []int{tabled, 5000, 100000} {
		kappa := 1 + float64(r)
		alpha := 1 + float64(r)/2
		hi, _ := math.Lgamma(alpha + 0.5)
		lo, _ := math.Lgamma(alpha)
		want := factors{
			hi - lo - 0.5*math.Log(alpha) + 0.5*math.Log(kappa/(2*math.Pi*(kappa+1))),
			1 / (kappa + 1),
			math.Log((alpha + 0.5) / alpha),
			alpha + 0.5,
		}
		got := unitTerms.asymptoticFor(r)
		for _, d := range []float64{
			got.constant - want.constant,
			got.step/want.step - 1,
			got.shrink/want.shrink - 1,
			got.power - want.power,
		} {
			if math.Abs(d) > 1e-9 {
				t.Errorf("r = %d: %+v, want %+v", r, got, want)
			}
		}
	}
}

func TestFilterRefusesWhatIsNotFinite(t *testing.T) {
	f := New(DefaultConfig())
	before, _ := f.Observe(1)
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		got, err := f.Observe(x)
		if !errors.Is(err, ErrNotFinite) || got != before || f.Seen() != 1 {
			t.Errorf("%v: %+v, %v, %d seen", x, got, err, f.Seen())
		}
	}
}

// hostile are series that break careless arithmetic.
func hostile() map[string][]float64 {
	rng := rand.New(rand.NewPCG(3, 5))
	out := map[string][]float64{
		"constant": make([]float64, 300),
		"huge":     nil,
		"tiny":     nil,
		"negative": nil,
		"wild":     nil,
	}
	for i := range out["constant"] {
		out["constant"][i] = 42
		out["huge"] = append(out["huge"], 1e300*(1+rng.Float64()*float64(i%7)/7))
		out["tiny"] = append(out["tiny"], 1e-300*rng.Float64())
		out["negative"] = append(out["negative"], -200-rng.Float64())
		out["wild"] = append(out["wild"], math.Pow(10, 600*rng.Float64()-300)*float64(1-2*(i%2)))
	}
	out["extremes"] = []float64{
		math.MaxFloat64,
		-math.MaxFloat64,
		5e-324,
		0,
		math.MaxFloat64,
		0,
		0,
		0,
		1,
		1,
		1,
		1,
		1,
		1,
		1,
		1,
		-math.MaxFloat64,
	}
	return out
}

func TestFilterStaysFinite(t *testing.T) {
	for name, xs := range hostile() {
		for _, cfg := range []Config{
			{},
			{Prune: DefaultPrune},
			{RunLength: 1},
			{RunLength: 1, Prune: DefaultPrune},
			{RunLength: 1e12, Prune: DefaultPrune},
		} {
			f := New(cfg)
			for i, x := range xs {
				if _, err := f.Observe(x); err != nil {
					t.Fatal(err)
				}
				checkPosterior(t, f, name, i)
			}
		}
	}
}

func checkPosterior(t testing.TB, f *Filter, name string, i int) {
	t.Helper()
	sum := 0.0
	for r, p := range f.Runs {
		if !(p >= 0 && p <= 1+1e-12) {
			t.Fatalf("%s[%d]: P(r=%d) = %v", name, i, r, p)
		}
		sum += p
	}
	s := f.Last()
	if math.Abs(sum-1) > 1e-9 ||
		!(s.PRecent >= 0 && s.PRecent <= 1) ||
		s.MAP > f.Seen() {
		t.Fatalf("%s[%d]: mass %v, %+v", name, i, sum, s)
	}
}

// Posterior appends P(r = 0), P(r = 1), … to dst[:0] up to the longest run
// length kept and returns it; run lengths that were pruned read 0.
func (f *Filter) Posterior(dst []float64) []float64 {
	longest := f.run[0]
	dst = dst[:0]
	for range longest + 1 {
		dst = append(dst, 0)
	}
	for i, r := range f.run {
		dst[r] = f.prob[i] * f.scale
	}
	return dst
}

// The factors of short runs are those of the table, in the terms of predictShort.
func TestShortFactors(t *testing.T) {
	for r := range seriesFrom {
		s, c := unitTerms.short[r], unitTerms.table[r]
		power := 1.5 + 0.5*float64(r)
		if s.step != c.step ||
			s.power != power ||
			math.Abs(s.byAlpha*power-1) > 1e-15 ||
			math.Abs(s.constant-c.constant+power*math.Log(power/(power-0.5))) > 1e-12 {
			t.Errorf("r = %d: %+v, %+v", r, s, c)
		}
	}
}
