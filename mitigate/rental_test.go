package mitigate

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

// algorithm1 is FALCON §5.2 as it is printed, iteration by iteration: it
// returns what is applied and when, for candidates by overhead.
func algorithm1(
	iterations []float64,
	healthy float64,
	overheads map[falcon.Rung]float64,
	candidates []falcon.Rung,
) map[falcon.Rung]int64 {
	out := map[falcon.Rung]int64{}
	impact := 0.0
	id := 0
	for n := int64(0); ; n++ {
		for id < len(candidates) && impact >= overheads[candidates[id]] {
			out[candidates[id]] = n
			id++
		}
		if n == int64(len(iterations)) {
			return out
		}
		if ms := iterations[n]; ms > healthy {
			impact += ms - healthy
		}
	}
}

func TestRentalAgainstAlgorithm1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rental{
			HealthyMs:    100,
			Cause:        falcon.CauseGPU,
			Policy:       falcon.Policy{Mode: falcon.ModeApprove},
			IterationsMs: rapid.SliceOfN(rapid.Float64Range(90, 200), 0, 60).Draw(t, "iterations"),
		}
		// Overheads that grow with the rung, so that the printed order holds.
		s2 := rapid.Float64Range(0, 800).Draw(t, "s2")
		s3 := s2 + rapid.Float64Range(1, 800).Draw(t, "s3")
		r.OverheadsMs = map[falcon.Rung]float64{
			falcon.RungS2: s2,
			falcon.RungS3: s3,
			falcon.RungS4: s3 + rapid.Float64Range(1, 3000).Draw(t, "s4"),
		}
		order := []falcon.Rung{falcon.RungS2, falcon.RungS3, falcon.RungS4}
		want := algorithm1(r.IterationsMs, 100, r.OverheadsMs, order)
		for i := range order { // those below were taken
			r.Taken = order[:i]
			got, err := r.Price()
			if err != nil {
				t.Fatal(err)
			}
			at, due := want[order[i]]
			if (got.Propose == order[i]) != due {
				t.Fatalf("after %v: proposes %q, algorithm 1 applies %v", r.Taken, got.Propose, want)
			}
			for _, v := range got.Rungs {
				if v.Rung == order[i] && due && v.BreakEven != at {
					t.Fatalf("%s breaks even after %d iterations, algorithm 1 after %d",
						v.Rung, v.BreakEven, at)
				}
			}
		}
	})
}

func TestRentalSkips(t *testing.T) {
	all := map[falcon.Rung]float64{
		falcon.RungS2: 50,
		falcon.RungS3: 500,
		falcon.RungS4: 60_000,
	}
	slow := []float64{150, 150, 150, 150, 150, 150, 150, 150, 150, 150, 150, 150}
	approve := falcon.Policy{Mode: falcon.ModeApprove}
	for name, c := range map[string]struct {
		in   Rental
		want falcon.Rung
	}{
		"a split can't help a link": {
			Rental{
				HealthyMs:    100,
				IterationsMs: slow,
				Cause:        falcon.CauseNetwork,
				OverheadsMs:  all,
				Policy:       approve,
			},
			falcon.RungS3,
		},
		"too early for S3": {
			Rental{
				HealthyMs:    100,
				IterationsMs: slow[:3],
				Cause:        falcon.CauseNetwork,
				OverheadsMs:  all,
				Policy:       approve,
			},
			"",
		},
		"no gain": {
			Rental{
				HealthyMs:    100,
				IterationsMs: slow,
				Cause:        falcon.CauseGPU,
				OverheadsMs:  all,
				GainsMs:      map[falcon.Rung]float64{falcon.RungS2: 0},
				Policy:       approve,
			},
			falcon.RungS3,
		},
		"not hardware": {
			Rental{
				HealthyMs:    100,
				IterationsMs: slow,
				Cause:        falcon.CauseNotHardware,
				OverheadsMs:  all,
				Policy:       approve,
			},
			"",
		},
		"observe": {
			Rental{
				HealthyMs:    100,
				IterationsMs: slow,
				Cause:        falcon.CauseGPU,
				OverheadsMs:  all,
				Policy:       falcon.Policy{Mode: falcon.ModeObserve},
			},
			"",
		},
		"never": {Rental{
			HealthyMs:    100,
			IterationsMs: slow,
			Cause:        falcon.CauseGPU,
			OverheadsMs:  all,
			Policy: falcon.Policy{
				Mode:  falcon.ModeApprove,
				Rungs: map[falcon.Rung]falcon.RungPolicy{falcon.RungS2: {Approval: falcon.ApprovalNever}},
			},
		}, falcon.RungS3},
	} {
		got, err := c.in.Price()
		if err != nil ||
			got.Propose != c.want ||
			got.Why == "" ||
			len(got.Rungs) != 4 {
			t.Errorf("%s: proposes %q (%s), %v; want %q", name, got.Propose, got.Why, err, c.want)
		}
	}
	if _, err := (Rental{
		HealthyMs: 100,
		Cause:     "heat",
		Policy:    approve,
	}).Price(); !errors.Is(err, ErrRental) {
		t.Errorf("an unknown cause: %v", err)
	}
	if _, err := (Rental{HealthyMs: 100, Cause: falcon.CauseGPU}).Price(); !errors.Is(err, ErrBadPolicy) {
		t.Errorf("no mode: %v", err)
	}
}
