package overhead

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b)) }

// A month with 30 failures, 20 s to save, 10 minutes to restart: by hand.
func TestEquationsByHand(t *testing.T) {
	m := Model{PeriodS: 2592000, Failures: 30, SaveS: 20, RestartS: 600}
	if best := m.BestS(); !near(best, math.Sqrt(3456000)) || best < 1859 || best > 1859.1 {
		t.Errorf("t* = %v", best)
	}
	l := m.At(1800)
	if l.RestartS != 18000 || l.RedoneS != 27000 || l.SavedS != 28800 || l.TotalS() != 73800 {
		t.Errorf("F(1800) = %+v", l)
	}
	if least := m.LeastS(); !near(least, 18000+math.Sqrt(2*2592000*20*30)) || !near(least, m.At(m.BestS()).TotalS()) {
		t.Errorf("F_min = %v, F(t*) = %v", least, m.At(m.BestS()).TotalS())
	}
	rest, lost := m.WithReplicas(Replicas{RecoverS: 150, RedoS: 10})
	if rest.Failures != 0 || lost != 4800 || rest.LeastS() != 0 || !math.IsInf(rest.BestS(), 1) {
		t.Errorf("with replicas %+v, %v", rest, lost)
	}
}

// lowest searches the minimum of F by thirds: F falls, then rises.
func lowest(m Model, low, high float64) float64 {
	for range 300 {
		a, b := low+(high-low)/3, high-(high-low)/3
		if m.At(a).TotalS() < m.At(b).TotalS() {
			high = b
		} else {
			low = a
		}
	}
	return low
}

func TestBestIsTheMinimum(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := Model{PeriodS: 1e3 + 1e7*rng.Float64(), Failures: 0.1 + 500*rng.Float64(), SaveS: 0.1 + 300*rng.Float64(), RestartS: 1000 * rng.Float64()}
		best := m.BestS()
		if found := lowest(m, best/100, best*100); math.Abs(found/best-1) > 1e-4 {
			t.Fatalf("seed %d: t* = %v, found %v", seed, best, found)
		}
		if !near(m.At(best).TotalS(), m.LeastS()) {
			t.Fatalf("seed %d: F(t*) = %v, F_min = %v", seed, m.At(best).TotalS(), m.LeastS())
		}
		for _, p := range m.Curve(best/10, best*10, 21) {
			if p.TotalS() < m.LeastS()*(1-1e-12) || p.IntervalS < best/10.001 || p.IntervalS > best*10.001 {
				t.Fatalf("seed %d: %+v is below F_min %v", seed, p, m.LeastS())
			}
		}
	}
}

// Failures that need a checkpoint are the only ones that ask for an interval.
func TestShareWithoutReplica(t *testing.T) {
	m := Model{PeriodS: 1e6, Failures: 100, SaveS: 10, RestartS: 300}
	rest, lost := m.WithReplicas(Replicas{RecoverS: 20, RedoS: 2, Share: 0.01})
	if !near(rest.BestS(), 10*m.BestS()) || !near(lost, 99*22) || !near(rest.Failures, 1) {
		t.Errorf("%+v, %v", rest, lost)
	}
	all, none := m.WithReplicas(Replicas{Share: 1})
	if all != m || none != 0 {
		t.Errorf("%+v, %v", all, none)
	}
}

func TestBadModels(t *testing.T) {
	for want, err := range map[string]error{
		"period_s is 0":         Model{}.Check(),
		"period_s is NaN":       Model{PeriodS: math.NaN()}.Check(),
		"failures is -1":        Model{PeriodS: 1, Failures: -1}.Check(),
		"k0_s is +Inf":          Model{PeriodS: 1, SaveS: math.Inf(1)}.Check(),
		"s0_s is 2e+12":         Model{PeriodS: 1, RestartS: 2e12}.Check(),
		"replica_s0_s is -1":    Replicas{RecoverS: -1}.Check(),
		"checkpoint_share is 2": Replicas{Share: 2}.Check(),
	} {
		if !errors.Is(err, ErrModel) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if err := errors.Join(Model{PeriodS: 1}.Check(), Replicas{}.Check()); err != nil {
		t.Error(err)
	}
}
