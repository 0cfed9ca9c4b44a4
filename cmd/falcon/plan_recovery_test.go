package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// lostNode is a job with ZeRO of two instances that lost one of its nodes.
const lostNode = `{"layout":{"tp":1,"dp":4,"pp":2},"zero":{"stage":1,"instances":2},"nodes":["n0","n1","n2","n3"],"racks":{"r0":["n0","n1"],"r1":["n2","n3"]},"failed":["n3"]}`

func recoveryOf(t *testing.T, in string) recoveryPlan {
	t.Helper()
	text, err := planWith("recovery", in)
	if err != nil {
		t.Fatal(err)
	}
	var out recoveryPlan
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// Ranks 6 and 7 are dp 2 and 3 of stage 1: their copies are dp 0 and 1.
func TestPlanRecoveryFromReplicas(t *testing.T) {
	out := recoveryOf(t, lostNode)
	if out.From != "replicas" ||
		out.Resume != nil ||
		out.Survivors != 6 ||
		!slices.Equal(out.FailedRanks, []falcon.Rank{6, 7}) ||
		len(out.Shards) != 2 {
		t.Fatalf("%+v", out)
	}
	for i, s := range out.Shards {
		r := falcon.Rank(4 + i)
		if !slices.Equal(s.Ranks, []falcon.Rank{r, r + 2}) ||
			len(s.Restore) != 1 ||
			s.Restore[0].Rank != r+2 ||
			s.Restore[0].From != r ||
			s.Reason != "" {
			t.Errorf("shard %d: %+v", i, s)
		}
	}
}

func TestPlanRecoveryFromCheckpoint(t *testing.T) {
	out := recoveryOf(t, strings.Replace(lostNode, `"instances":2`, `"instances":1`, 1))
	if out.From != "checkpoint" ||
		!strings.Contains(out.Reason, "one optimizer instance") ||
		len(out.Shards) != 2 ||
		out.Shards[0].Reason == "" ||
		out.Shards[0].Restore[0].From != falcon.FromCheckpoint {
		t.Errorf("%+v", out)
	}
	out = recoveryOf(t, strings.Replace(lostNode, `["n3"]}`, `["n3","n2.g0"]}`, 1))
	if out.From != "checkpoint" ||
		!strings.Contains(out.Reason, "ranks 4, 6") ||
		out.Survivors != 5 {
		t.Errorf("%+v", out)
	}
}

// Rank 1 has not updated yet and rank 3 is lost: one step back, and rank 0
// holds both.
func TestPlanRecoveryByWord(t *testing.T) {
	out := recoveryOf(t,
		`{"layout":{"tp":1,"dp":4,"pp":1},"zero":{"stage":1,"instances":2},"nodes":["a","b","c","d"],"failed":["d"],
"holds":{"0":{"steps":[41,42],"sums":[7,9]},"1":{"steps":[41],"sums":[8]},"2":{"steps":[42],"sums":[9]}}}`)
	if out.From != "replicas" ||
		out.Resume == nil ||
		*out.Resume != 41 ||
		len(out.Shards) != 2 ||
		out.Shards[0].Restore[0].Rank != 2 ||
		out.Shards[1].Restore[0].From != 1 {
		t.Errorf("%+v", out)
	}
}

func TestPlanRecoveryOnBadInput(t *testing.T) {
	for in, want := range map[string]string{
		``:                                  "empty",
		`{}`:                                "layout is missing",
		`{"layout":{"tp":1,"dp":0,"pp":1}}`: "at least 1",
		`{"layout":{"tp":1,"dp":2,"pp":1}}`: "hold no job of 2 ranks",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"zero":{"stage":1,"instances":3}}`:               "do not divide",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"zero":{"stage":7}}`:                             "no ZeRO stage 7",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"failed":["b"]}`:                                 `failed names "b"`,
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"racks":{"r":["b"]}}`:                            `rack "r" has node "b"`,
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"racks":{"r":["a"],"s":["a"]}}`:                  `in racks "r" and "s"`,
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"racks":{"r":[]}}`:                               "no nodes",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"switches":{"r":["a"]}}`:                         `no field "switches"`,
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"holds":{"0":{"steps":[1]}}}`:                    "1 steps and 0 sums",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"holds":{"7":{"steps":[1],"sums":[1]}}}`:         "no rank 7",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"spares":1}`:                                     `no field "spares"`,
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"placement":["a.g0","a.g0"]}`:                    "ranks 0 and 1",
		`{"layout":{"tp":1000000000,"dp":1000000000,"pp":1000000000},"nodes":["a"]}`:                     "limit",
		"{\"layout\":{\"tp\":1,\"dp\":2,\"pp\":1},\"nodes\":[\"a\"],\"failed\":[\"\\u001b[31m\\n\"]}":    "failed names",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"holds":{"0":{"steps":[1,2,3],"sums":[1,2,3]}}}`: "up to two steps",
	} {
		out, err := planWith("recovery", in)
		if err == nil ||
			out != "" ||
			!strings.Contains(err.Error(), want) ||
			strings.ContainsAny(err.Error(), "\n\x1b") ||
			!errors.Is(err, errUsage) {
			t.Errorf("%q: output %q, error %v; want one sentence with %q and exit 2", in, out, err, want)
		}
	}
}

func FuzzPlanRecovery(f *testing.F) {
	f.Add(lostNode)
	f.Add(`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a","b"],"holds":{"0":{"steps":[4,3],"sums":[1,2]}}}`)
	f.Fuzz(func(t *testing.T, in string) { oneAnswer(t, in, planRecovery) })
}
