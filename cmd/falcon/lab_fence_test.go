package main

import (
	"fmt"
	"slices"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

// TestLabFence plays a slow GPU whose node gives way to a spare in a recovery, and the
// same with a restart of the whole job, and compares how long the job stood.
func TestLabFence(t *testing.T) {
	if testing.Short() {
		t.Skip("whole lab runs")
	}
	binFalcon(t)
	sc, err := lab.Load("fence")
	if err != nil {
		t.Fatal(err)
	}
	sc.Iterations = 90
	fenced, out := playReport(t, sc)
	if bad := judgeFence(fenced); len(bad) > 0 {
		t.Fatalf("%v\n%s", bad, out)
	}
	sc.Policy["variants"] = []string{string(falcon.VariantReplace)}
	sc.Iterations = 100
	whole, out := playReport(t, sc)
	if bad := append(judgeSums(whole), judgeOrder(whole)...); len(bad) > 0 ||
		len(whole.Restarts) != 1 ||
		len(whole.Recoveries) != 0 {
		t.Fatalf("%v, %d restarts\n%s", bad, len(whole.Restarts), out)
	}
	f, w := fenced.Recoveries[0], whole.Restarts[0]
	t.Logf(
		"a fence: %.0f ms without training, %d iterations run again, %s; a restart of the whole job: %.0f ms",
		f.DownMs, f.LostIterations, phasesText(f.PhasesMs), w.DownMs,
	)
	if f.DownMs >= w.DownMs {
		t.Errorf("the fence kept the job from training for %.0f ms, the restart of the whole job for %.0f ms",
			f.DownMs, w.DownMs)
	}
}

// judgeFence: the slow node went, its ranks came from replicas, and all others stayed; the
// job is as fast as it was, with the weights and samples of the undisturbed run.
func judgeFence(r lab.Report) []string {
	bad := append(judgeSums(r), judgeOrder(r)...)
	if len(r.Recoveries) != 1 || len(r.Restarts) != 0 || len(r.Incidents) != 1 {
		return append(bad, fmt.Sprintf("%d recoveries, %d restarts, %d incidents; want one, none, one",
			len(r.Recoveries), len(r.Restarts), len(r.Incidents)))
	}
	v := r.Recoveries[0]
	bad = append(bad, judgeOne(v, []int{2, 3})...)
	if !slices.Equal(v.Fenced, []falcon.Node{"n1"}) {
		bad = append(bad, fmt.Sprintf("%v are fenced", v.Fenced))
	}
	in := r.Incidents[0]
	if in.State != string(falcon.IncidentClosed) || len(in.Actions) != 1 {
		return append(bad, fmt.Sprintf("the incident is %s after %d actions", in.State, len(in.Actions)))
	}
	a := in.Actions[0]
	if a.Variant != string(falcon.VariantFence) ||
		a.State != string(falcon.ActionKept) ||
		!(a.MeasuredMs < 1.1*a.PredictedMs) ||
		!(a.OverheadMs > 0) {
		bad = append(bad, fmt.Sprintf("action %+v", a))
	}
	return bad
}
