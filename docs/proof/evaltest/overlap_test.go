package evaltest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

const slowOverlapped = 5 // rank

func namesSlowGPU(s Story) bool {
	return slices.Equal(s.Devices(), []falcon.Device{"n1.g1"})
}

func namesSlowNode(s Story) bool {
	return len(s.Devices()) > 0 &&
		!slices.ContainsFunc(s.Devices(), func(d falcon.Device) bool {
			return d.Node() != "n1"
		})
}

func namesNetwork(s Story) bool {
	return len(s.Incidents) == 1 &&
		len(s.Devices()) == 0 &&
		s.Incidents[0].Verdict.Cause == falcon.CauseNetwork
}

func namesNothing(s Story) bool { return len(s.Incidents) == 0 }

// Where communication hides behind computation, and every GPU has a pace of its
// own, timing alone names the culprit, and in a healthy job none.
func TestOverlapIsSeenThrough(t *testing.T) {
	const seeds = 5
	gpu := func(clock float64) func(*Overlapped) {
		return func(j *Overlapped) { j.Clock[slowOverlapped] *= clock }
	}
	link := func(share float64) func(*Overlapped) {
		return func(j *Overlapped) { j.Link = share }
	}
	host := func(j *Overlapped) {
		for r := j.PerNode; r < j.Ranks; r++ {
			j.Share[r] = 0.04
		}
	}
	var table strings.Builder
	for _, c := range []struct {
		job                   string
		sharded               bool
		computeMs, transferMs float64 // of a layer's forward pass, and of its collective
		fault                 string
		strike                func(*Overlapped)
		right                 func(Story) bool
	}{
		{"buckets", false, 3, 3, "none", link(1), namesNothing},
		{"buckets", false, 3, 3, "GPU at 0.8", gpu(0.8), namesSlowGPU},
		{"buckets", false, 3, 3, "GPU at 0.4", gpu(0.4), namesSlowGPU},
		{"buckets", false, 3, 3, "host", host, namesSlowNode},
		{"buckets", false, 3, 3, "link at 0.2", link(0.2), namesNetwork},
		{"sharded", true, 4, 2, "none", link(1), namesNothing},
		{"sharded", true, 4, 2, "GPU at 0.8", gpu(0.8), namesSlowGPU},
		{"sharded", true, 4, 2, "host", host, namesSlowNode},
		{"sharded", true, 4, 2, "link at 0.2", link(0.2), namesNetwork},
		{"sharded, gaps vanish", true, 4, 4, "none", link(1), namesNothing},
		{"sharded, gaps vanish", true, 4, 4, "GPU at 0.6", gpu(0.6), namesSlowGPU},
		{"sharded, gaps vanish", true, 4, 4, "host", host, namesSlowNode},
		{"sharded, gaps vanish", true, 4, 4, "link at 0.5", link(0.5), namesNetwork},
		{"sharded, transfers most", true, 3, 8, "none", link(1), namesNothing},
		{
			"sharded, transfers most",
			true,
			3,
			8,
			"GPU hidden at 0.6: 3 % of an iteration",
			gpu(0.6),
			namesSlowGPU,
		},
		{"sharded, transfers most", true, 3, 8, "GPU at 0.3", gpu(0.3), namesSlowGPU},
		{"sharded, transfers most", true, 3, 8, "link at 0.5", link(0.5), namesNetwork},
	} {
		right := 0
		for seed := range uint64(seeds) {
			s := NewOverlapped(c.sharded, c.computeMs, c.transferMs, seed).Play(120, c.strike)
			if c.right(s) {
				right++
				continue
			}
			for _, inc := range s.Incidents {
				fmt.Fprintf(&table, "  seed %d: %s %v %v\n",
					seed, inc.Verdict.Cause, inc.Verdict.Devices, inc.Verdict.Evidence)
			}
		}
		fmt.Fprintf(&table, "%s %g/%g ms, %s: %d of %d\n",
			c.job, c.computeMs, c.transferMs, c.fault, right, seeds)
		if right < seeds {
			t.Errorf("%s, %s: %d of %d right", c.job, c.fault, right, seeds)
		}
	}
	t.Log("\n" + table.String())
}

// A GPU that is a few percent behind, whose clock says so too, looks far slower
// by the gaps between its calls than it is: the others' gaps are where they wait.
func TestOverlapExaggeratesNoGPU(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		for seed := range uint64(10) {
			j := NewOverlapped(sharded, 4, 3, seed)
			for r := range j.Clock {
				j.Clock[r] = 1
			}
			j.Clock[slowOverlapped], j.Read = 0.94, true
			if s := j.Play(120, func(*Overlapped) {}); !namesNothing(s) {
				t.Errorf("sharded %t, seed %d: %v: %v",
					sharded, seed, s.Devices(), s.Incidents[0].Verdict.Evidence)
			}
		}
	}
}

// The natural spread of the GPUs does not keep an incident open.
func TestOverlapIsRelieved(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		for _, transferMs := range []float64{2, 4} {
			for seed := range uint64(5) {
				j := NewOverlapped(sharded, 4, transferMs, seed)
				healthy := j.Clock[slowOverlapped]
				s := j.Play(120, func(j *Overlapped) {
					j.Clock[slowOverlapped] = 0.5
				}, func(j *Overlapped) { j.Clock[slowOverlapped] = healthy })
				if !namesSlowGPU(s) ||
					len(s.Incidents) != 1 ||
					s.Incidents[0].State != falcon.IncidentClosed {
					t.Errorf("sharded %t, %g ms, seed %d: %d incidents, %v, %s",
						sharded, transferMs, seed, len(s.Incidents), s.Devices(),
						s.Incidents[0].State)
				}
			}
		}
	}
}

// The verdict says what it rests on.
func TestOverlapIsEvidence(t *testing.T) {
	s := NewOverlapped(true, 4, 4, 1).Play(120, func(j *Overlapped) {
		j.Clock[slowOverlapped] = 0.5
	})
	if !namesSlowGPU(s) {
		t.Fatal(s.Devices())
	}
	for _, want := range []string{"hides behind", "entered last"} {
		if !slices.ContainsFunc(s.Incidents[0].Verdict.Evidence, func(e falcon.Evidence) bool {
			return strings.Contains(e.Text, want)
		}) {
			t.Errorf("no %q in %v", want, s.Incidents[0].Verdict.Evidence)
		}
	}
}
