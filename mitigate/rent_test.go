package mitigate

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/failslow/falcon"
)

// Ski-rental with one rung: whenever the adversary ends the fault, waiting and
// switching cost at most twice what knowing the end would have cost, up to one
// iteration's loss, as the planner can only act at iteration boundaries.
func TestSkiRentalIsTwoCompetitive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		self := []float64{10, 10, 10 * rapid.Float64Range(1.3, 4).Draw(t, "slowness"), 10}
		overhead := rapid.Float64Range(0, 5000).Draw(t, "overhead")
		last := rapid.Int64Range(0, 400).Draw(t, "duration")
		time := func(m []int32) float64 {
			worst := 0.0
			for i, k := range m {
				worst = max(worst, float64(k)*self[i])
			}
			return worst
		}
		r := newRig(Config{
			OverheadsMs: map[falcon.Rung]float64{falcon.RungS2: overhead},
			MinGain:     1e-9,
		})
		even := []int32{8, 8, 8, 8}
		r.step(fourReplicas(1, even...), autoS2)
		v := gpuIncident("INC-0001", 2, 0)
		v.SlowMs = time(even)
		r.step(Incident{v}, Speeds{Incident: "INC-0001", SelfMs: self})
		m, paid, sent := even, 0.0, 0
		for i := range last {
			if sent < len(r.orders) { // the ranks agree at the boundary
				sent = len(r.orders)
				m = r.orders[len(r.orders)-1].MicroBatches
				paid += overhead
				r.step(Committed{Order: uint64(sent), Iteration: i})
			}
			paid += time(m) - 80
			r.step(Iteration{Index: i, Ms: time(m)})
		}
		wait := (time(even) - 80) * float64(last)
		best := r.p.plans.solveSplit(r.p.plans.replicaCurves(self, nil)).makespanMs - 80
		if last > 0 && len(r.orders) == 0 && wait > overhead+time(even) {
			t.Fatalf("never switched: %v", r.notes)
		}
		optimum := math.Min(wait, overhead+best*float64(last))
		if paid > 2*optimum+(time(even)-80)+1e-6 {
			t.Fatalf("paid %.1f, optimum %.1f, overhead %.1f", paid, optimum, overhead)
		}
	})
}

// However a fault flaps, the job is switched a bounded number of times, and
// rests after each revert.
func TestFlappingFaultSwitchesTheJobRarely(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(Config{})
		r.step(fourReplicas(1, 8, 8, 8, 8), autoS2)
		r.iterations(0, 9, 80)
		var applied, reverted []int64
		var open *falcon.Incident
		id, answered, slow := 0, 0, false
		for i := int64(10); i < 2500; i++ {
			for ; answered < len(r.orders); answered++ {
				r.step(Committed{Order: r.orders[answered].ID, Iteration: i})
				if a := r.acted[len(r.acted)-1]; a.Reverted {
					reverted = append(reverted, i)
				} else {
					applied = append(applied, i)
				}
			}
			if rapid.IntRange(0, 24).Draw(t, "flip") == 0 {
				if slow = !slow; slow {
					id++
					v := gpuIncident(
						"INC-"+string(rune('A'+id%26))+string(rune('A'+id/26)),
						2,
						i,
					)
					open = &v
					r.step(Incident{v}, Speeds{
						Incident: v.ID,
						SelfMs:   []float64{10, 10, 20, 10},
					})
				} else {
					r.step(relieved(*open, i))
				}
			}
			ms := 80.0
			if slow {
				ms = 160
			}
			r.step(Iteration{Index: i, Ms: ms})
		}
		for k := range applied {
			if k >= ActionsMost && applied[k]-applied[k-ActionsMost] < ActionsWithin-2 {
				t.Fatalf("%d actions between iterations %d and %d",
					ActionsMost+1, applied[k-ActionsMost], applied[k])
			}
			for _, at := range reverted {
				if applied[k] >= at && applied[k] < at+CoolDown {
					t.Fatalf("applied at %d, %d iterations after a revert", applied[k], applied[k]-at)
				}
			}
		}
	})
}
