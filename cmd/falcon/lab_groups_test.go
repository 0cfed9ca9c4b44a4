package main

import (
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

// TestSingleRanksChangePlaces plays two slow GPUs in two replicas: no order of the two nodes
// helps, and the exchange of single ranks brings both into one replica.
func TestSingleRanksChangePlaces(t *testing.T) {
	if !*labKills {
		t.Skip("a lab: run make swaps")
	}
	binFalcon(t)
	sc, err := lab.Load("two-replicas")
	if err != nil {
		t.Fatal(err)
	}
	r, out := playReport(t, sc)
	if bad := judgeLoss(r); len(bad) > 0 {
		t.Fatalf("%v\n%s", bad, out)
	}
	all := actionsOf(r)
	if len(all) != 2 ||
		all[1].Rung != string(falcon.RungS3) ||
		all[1].State != string(falcon.ActionKept) ||
		all[1].Preview == nil ||
		len(all[1].Preview.Groups) == 0 ||
		len(r.Swaps) != 1 {
		t.Fatalf("%s, %d swaps\n%s", actionStates(r), len(r.Swaps), out)
	}
	s2, s3 := all[0], all[1]
	t.Logf("%.0f ms, %.0f by S2, %.0f by S3 (%v)",
		s2.BeforeMs, s2.MeasuredMs, s3.MeasuredMs, s3.Preview.Groups)
	if s3.MeasuredMs > 0.95*s2.MeasuredMs || s3.MeasuredMs > 1.1*s3.PredictedMs {
		t.Errorf("S2 left %.1f ms, S3 %.1f, predicted %.1f", s2.MeasuredMs, s3.MeasuredMs, s3.PredictedMs)
	}
}
