package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/agent/lab"
)

// judgeFewer: one recovery, which ended with the job training on fewer replicas,
// all of them replaced; every iteration was run, over the samples of the
// undisturbed run, and came to its loss.
func judgeFewer(r lab.Report, world int, given string) []string {
	bad := judgeRestarted(r, world, given)
	if r.SamplesNote != lab.SamplesShared {
		bad = append(bad, r.SamplesNote)
	}
	return bad
}

// judgeRestarted: one recovery, which ended with all ranks started again, none kept.
func judgeRestarted(r lab.Report, world int, given string) []string {
	bad := append(judgeSums(r), judgeDeaths(r, 1)...)
	if len(r.Recoveries) != 1 {
		return append(bad, fmt.Sprintf("%d recoveries, want one", len(r.Recoveries)))
	}
	s := r.Recoveries[0]
	if s.State != "resumed" || !strings.Contains(s.Reason, given) {
		bad = append(bad, fmt.Sprintf("%s is %s: %s", s.ID, s.State, s.Reason))
	}
	if len(s.Replaced) != world || len(s.Survivors) != 0 {
		bad = append(bad, fmt.Sprintf("%d ranks were replaced and %d stayed, want a world of %d",
			len(s.Replaced), len(s.Survivors), world))
	}
	return bad
}

// TestLabReplicaLoss plays a node's loss without a spare.
func TestLabReplicaLoss(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole lab run")
	}
	binFalcon(t)
	sc, err := lab.Load("replica-loss")
	if err != nil {
		t.Fatal(err)
	}
	sc.Iterations = 40 // enough to see the job train again
	r, out := playReport(t, sc)
	bad := judgeFewer(r, 6, "3 of 4 replicas")
	if len(bad) > 0 || len(r.Iterations) != sc.Iterations {
		t.Errorf("%d iterations; %s\n%s", len(r.Iterations), strings.Join(bad, "; "), out)
	}
	s := r.Recoveries[0]
	if s.ResumeIteration != 20 || s.LostIterations < 4 || s.DownMs <= 0 {
		t.Errorf("resumed at iteration %d, %d run again, %.0f ms down",
			s.ResumeIteration, s.LostIterations, s.DownMs)
	}
}

// The judge says what is wrong, one thing at a time.
func TestJudgeFewer(t *testing.T) {
	ms := 40.0
	good := func() lab.Report {
		return lab.Report{
			Training: lab.Training{
				SamplesNote:  lab.SamplesShared,
				WeightsNote:  "replicas were given up",
				WeightsSha:   "a",
				ReferenceSha: "b",
			},
			Kills: []lab.Kill{{Target: "node n1", Iteration: 30, DetectedMs: &ms}},
			Recoveries: []lab.RecoveryReport{{
				ID:       "REC-0001",
				State:    "resumed",
				Reason:   "1 of 2 replicas",
				Replaced: map[falcon.Rank]falcon.Device{0: "n0.g0"},
			}},
		}
	}
	if bad := judgeFewer(good(), 1, "1 of 2"); bad != nil {
		t.Errorf("a right report: %v", bad)
	}
	for want, spoil := range map[string]func(*lab.Report){
		"loss 2, reference 0":    func(r *lab.Report) { r.FinalLoss = 2 },
		"iteration 9 began with": func(r *lab.Report) { r.SamplesNote = "iteration 9 began with sample 3" },
		"2 deaths were dealt": func(r *lab.Report) {
			r.Kills = append(r.Kills, r.Kills[0])
		},
		"0 recoveries":        func(r *lab.Report) { r.Recoveries = nil },
		"is failed: 1 of 2":   func(r *lab.Report) { r.Recoveries[0].State = "failed" },
		"is resumed: another": func(r *lab.Report) { r.Recoveries[0].Reason = "another" },
		"2 ranks were replaced": func(r *lab.Report) {
			r.Recoveries[0].Replaced[1] = "n1.g0"
		},
		"1 ranks were replaced an": func(r *lab.Report) {
			r.Recoveries[0].Survivors = []falcon.Rank{1}
		},
	} {
		r := good()
		spoil(&r)
		if got := strings.Join(judgeFewer(r, 1, "1 of 2"), "; "); !strings.Contains(got, want) {
			t.Errorf("want %q, the judge says %q", want, got)
		}
	}
}

func TestScenarioParts(t *testing.T) {
	for want, said := range map[string]map[string]any{
		"":                            {"spare_wait": "5s"},
		"recovery.spare_wait is -5s":  {"spare_wait": "-5s"},
		"the scenario's recovery: li": {"spare_time": "5s"},
	} {
		c := engineConfig{}
		err := scenarioPart("recovery", said, &c.Recovery, &c)
		got := fmt.Sprint(err)
		if want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%v: want %q, got %q", said, want, got)
		}
	}
}

// TestLabWithoutAdapter restarts a job whole that reports nothing to the hook: a rank
// is killed, or freezes, and its node is replaced. The checkpoint is found in storage.
func TestLabWithoutAdapter(t *testing.T) {
	if testing.Short() {
		t.Skip("whole lab runs")
	}
	binFalcon(t)
	for _, death := range []lab.Event{
		{AtIteration: 200, Kill: "rank 3"},
		{AtIteration: 200, Freeze: "rank 3"},
	} {
		sc := recoverScenario(
			"no-adapter",
			lab.Shape{TP: 1, DP: 4, PP: 1},
			1,
			death,
		)
		sc.Nodes = 2
		sc.Iterations = 250
		sc.Checkpoints = 25
		sc.ForwardMs = 4
		r, out := playReport(t, sc, "--adapter", "off")
		bad := judgeRestarted(r, 4, "no adapter for recoveries")
		if len(bad) > 0 || len(r.Iterations) != sc.Iterations {
			t.Errorf("%s%s: %d iterations; %s\n%s",
				death.Kill, death.Freeze, len(r.Iterations), strings.Join(bad, "; "), out)
		}
	}
}
