package bocd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestLastingChangeIsNeverJitter: a step that lasts ends as an onset, also with
// a hiccup or a burst right before it, with noise of 5 %, or early in the
// series, and its relief is found as well.
func TestLastingChangeIsNeverJitter(t *testing.T) {
	for _, at := range []int{14, 20, 33, 60} {
		for _, size := range []float64{0.8, 0.96} {
			for _, gap := range []int{0, 1, 2, 3} {
				missed := 0
				for seed := range uint64(60) {
					rng := rand.New(rand.NewPCG(seed, uint64(at)))
					cov := []float64{0.02, 0.05}[seed%2]
					xs := noisy(
						rng,
						cov,
						span{at, 210},
						span{80, 210 * (1 + size)},
						span{60, 210},
					)
					for i := at - gap; gap > 0 && i < at-gap/2; i++ {
						xs[i] = 210 * []float64{1.4, 1.9, 2.3, 6}[rng.IntN(4)]
					}
					tr := NewTracker(DefaultTrackerConfig())
					if why := followed(t, tr, xs, at, 80, size); why != "" {
						missed++
						t.Logf("+%.0f %% at %d, hiccup %d before, CoV %g, seed %d: %s",
							100*size, at, gap, cov, seed, why)
					}
				}
				if missed > 0 {
					t.Errorf("+%.0f %% at %d, hiccup %d before: %d of 60 missed", 100*size, at, gap, missed)
				}
			}
		}
	}
}

// followed says what is wrong with what the tracker makes of a series with one
// step up and, lasting points later, one back.
func followed(t *testing.T, tr *Tracker, xs []float64, at, lasting int, size float64) string {
	head := verified(track(t, tr, xs[:at+2*patience]))
	if len(head) == 0 ||
		head[0].Kind != KindOnset ||
		head[0].Index < at-5 ||
		head[0].Index > at+1 ||
		!tr.Slow() {
		return fmt.Sprintf("at first %+v", head)
	}
	if math.Abs(tr.centre/(210*(1+size))-1) > 0.15 {
		return fmt.Sprintf("level %.0f after %+v", tr.centre, head)
	}
	tail := verified(track(t, tr, xs[at+2*patience:]))
	if len(tail) == 0 ||
		tail[0].Kind != KindRelief ||
		tail[0].Index < at+lasting-1 ||
		tail[0].Index > at+lasting+1 ||
		tr.Slow() {
		return fmt.Sprintf("later %+v", tail)
	}
	return ""
}

// A job that starts beside other work: a burst among the first points makes the
// level that the warm-up learns high and wide. What follows is no return to it.
func TestBurstInTheWarmUpHidesNoOnset(t *testing.T) {
	const onset = 40
	series := []float64{
		228, 176, 177, 162, 171, 315, 234, 499, 460, 158, 164, 169, 167, 156, 157, 159, 159, 162, 167, 161,
		156, 159, 156, 160, 160, 162, 164, 178, 163, 164, 172, 169, 164, 158, 160, 163, 166, 162, 172, 158,
		241, 252, 250, 254, 291, 348, 243, 244, 264, 261, 262, 246, 239, 238, 246, 243, 237, 238, 240, 245,
	}
	tr := NewTracker(DefaultTrackerConfig())
	var onsets []Change
	for _, ms := range series {
		changes, err := tr.Observe(ms)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if c.Kind == KindOnset {
				onsets = append(onsets, c)
			}
		}
	}
	if len(onsets) != 1 ||
		onsets[0].Index != onset ||
		onsets[0].DetectedAt > onset+4 {
		t.Fatalf("onsets: %+v", onsets)
	}
	if b := tr.BaselineMs(); b < 155 || b > 170 {
		t.Errorf("baseline %.0f ms, not 160", b)
	}
}
