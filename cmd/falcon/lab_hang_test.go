package main

import (
	"strings"
	"testing"

	"github.com/failslow/falcon/agent/lab"
)

// hangWithin is within how much time the engine names who holds a job up.
const hangWithin = 10_000

// judgeLiveHang: the standstill is reported in time, with the rank, the call and what to do, and
// no recovery and no incident comes of it while it lasts.
func judgeLiveHang(r lab.Report) []string {
	var bad []string
	if len(r.Stalls) != 1 {
		return []string{"there was no stall, or several"}
	}
	s := r.Stalls[0]
	if s.DetectedMs == nil || *s.DetectedMs > hangWithin {
		bad = append(bad, "not reported in time")
	}
	for _, want := range []string{
		"the job stands still: rank 3 (n1.g1, process ", ") has not called collective ",
		" of communicator dp (ranks 0-3), in which ranks 0-2 wait; ",
		"it is in the program's own code", ". On n1: py-spy dump --pid ",
	} {
		if !strings.Contains(s.Said, want) {
			bad = append(bad, "does not say: "+want)
		}
	}
	if len(r.Recoveries) != 0 {
		bad = append(bad, "a recovery began")
	}
	return append(bad, judgeSums(r)...)
}

// TestLabHang has a rank stay in its own code for some seconds.
func TestLabHang(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole lab run")
	}
	binFalcon(t)
	sc, err := lab.Load("hang")
	if err != nil {
		t.Fatal(err)
	}
	// What is left behind the stall lasts longer than two beats, by which the engine knows
	// that the job goes on.
	sc.Iterations, sc.ForwardMs, sc.Events[0].AtIteration, sc.Events[0].ForMs = 120, 2, 25, 9000
	r, out := playReport(t, sc)
	if bad := judgeLiveHang(r); len(bad) > 0 ||
		!strings.Contains(out, "the job goes on after it stood still for") {
		t.Errorf("%s\n%+v\n%s", strings.Join(bad, "; "), r.Stalls, out)
	} else {
		t.Logf("reported %.1f s after the standstill began", *r.Stalls[0].DetectedMs/1000)
	}
}
