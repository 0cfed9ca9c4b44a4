package main

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func checkpointOf(t *testing.T, in string) checkpointPlan {
	t.Helper()
	text, err := planWith("checkpoint", in)
	if err != nil {
		t.Fatal(err)
	}
	var out checkpointPlan
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

func TestPlanCheckpoint(t *testing.T) {
	out := checkpointOf(t, `{"period_s":2592000,"failures":30,"k0_s":20,"s0_s":600,"step_s":10}`)
	if out.BestS == nil || math.Abs(*out.BestS-1859.03) > 0.01 || math.Abs(*out.BestSteps-185.903) > 0.001 || math.Abs(out.LeastS-73770.96) > 0.01 || out.Replicas != nil || len(out.Curve) != 21 {
		t.Fatalf("%+v", out)
	}
	for i, p := range out.Curve {
		if want := 30*(600+p.IntervalS/2) + 2592000/p.IntervalS*20; math.Abs(p.TotalS-want) > 0.01 || p.TotalS < out.LeastS-1e-6 || i > 0 && p.IntervalS <= out.Curve[i-1].IntervalS {
			t.Errorf("%+v, want F = %v", p, want)
		}
	}
}

func TestPlanCheckpointWithReplicas(t *testing.T) {
	out := checkpointOf(t, `{"period_s":2592000,"failures":30,"k0_s":20,"s0_s":600,"step_s":10,"replica_s0_s":150}`)
	if r := out.Replicas; r == nil || r.BestS != nil || r.LeastS != 30*160 || math.Abs(r.GainS-(out.LeastS-4800)) > 1e-6 {
		t.Errorf("%+v", r)
	}
	out = checkpointOf(t, `{"period_s":2592000,"failures":30,"k0_s":20,"s0_s":600,"replica_s0_s":150,"replica_s1_s":5,"checkpoint_share":0.01}`)
	if r := out.Replicas; r == nil || r.BestS == nil || math.Abs(*r.BestS-10**out.BestS) > 1e-4 {
		t.Errorf("a hundredth of the failures asks for ten times the interval: %+v", r)
	}
}

// Where nothing fails nobody saves, and where saving is free it never ends.
func TestPlanCheckpointWithoutEnd(t *testing.T) {
	if out := checkpointOf(t, `{"period_s":100,"failures":0,"k0_s":20,"s0_s":600}`); out.BestS != nil || out.LeastS != 0 || len(out.Curve) != 21 {
		t.Errorf("%+v", out)
	}
	if out := checkpointOf(t, `{"period_s":100,"failures":1,"k0_s":0,"s0_s":6}`); out.BestS == nil || *out.BestS != 0 || out.LeastS != 6 {
		t.Errorf("%+v", out)
	}
}

func TestPlanCheckpointOnBadInput(t *testing.T) {
	for in, want := range map[string]string{
		``:                                     "empty",
		`{"period_s":1}`:                       "failures is missing",
		`{"failures":1}`:                       "period_s is missing",
		`{"period_s":1,"failures":1}`:          "k0_s is missing",
		`{"period_s":1,"failures":1,"k0_s":1}`: "s0_s is missing",
		`{"period_s":0,"failures":1,"k0_s":1,"s0_s":1}`:                                       "period_s is 0",
		`{"period_s":9,"failures":-1,"k0_s":1,"s0_s":1}`:                                      "failures is -1",
		`{"period_s":9,"failures":1,"k0_s":1,"s0_s":1e300}`:                                   "s0_s is 1e+300",
		`{"period_s":9,"failures":1,"k0_s":"x","s0_s":1}`:                                     "k0_s can't be a string",
		`{"period_s":9,"failures":1,"k0_s":1,"s0_s":1,"step_s":-1}`:                           "step_s",
		`{"period_s":9,"failures":1,"k0_s":1,"s0_s":1,"checkpoint_share":0.1}`:                "need replica_s0_s",
		`{"period_s":9,"failures":1,"k0_s":1,"s0_s":1,"replica_s0_s":1,"checkpoint_share":2}`: "checkpoint_share is 2",
		`{"period_s":9,"failures":1,"k0_s":1,"s0_s":1,"t":3}`:                                 `no field "t"`,
	} {
		out, err := planWith("checkpoint", in)
		if err == nil || out != "" || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\x1b") || !errors.Is(err, errUsage) {
			t.Errorf("%q: output %q, error %v; want one sentence with %q and exit 2", in, out, err, want)
		}
	}
}

func FuzzPlanCheckpoint(f *testing.F) {
	f.Add(`{"period_s":2592000,"failures":30,"k0_s":20,"s0_s":600,"step_s":10,"replica_s0_s":150,"checkpoint_share":0.1}`)
	f.Fuzz(func(t *testing.T, in string) { oneAnswer(t, in, planCheckpoint) })
}
