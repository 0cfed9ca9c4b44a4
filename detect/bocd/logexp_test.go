package bocd

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestLogAndExp holds the two fast functions against package math.
func TestLogAndExp(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 13))
	for range 200_000 {
		x := 1 + math.Pow(10, 316*rng.Float64()-16)
		if want, got := math.Log(x), fastLog(x); math.Abs(want-got) > 3e-16+1e-15*want {
			t.Fatalf("log %v = %v, want %v", x, got, want)
		}
		if want, got := math.Log(1/x), fastLog(1/x); x < 1/leastNormal &&
			math.Abs(want-got) > 3e-16-1e-15*want {
			t.Fatalf("log %v = %v, want %v", 1/x, got, want)
		}
		y := -math.Pow(10, 20*rng.Float64()-17)
		want := math.Exp(y)
		got := expNegative(y)
		if y <= -700 {
			want = 0
		}
		if math.Abs(want-got) > 1e-13*want {
			t.Fatalf("exp %v = %v, want %v", y, got, want)
		}
	}
	for x, want := range map[float64]float64{0: 1, -700: 0, math.Inf(-1): 0, -1e300: 0} {
		if got := expNegative(x); got != want {
			t.Errorf("exp %v = %v", x, got)
		}
	}
	if got := fastLog(1); math.Abs(got) > 3e-16 {
		t.Errorf("log 1 = %v", got)
	}
}
