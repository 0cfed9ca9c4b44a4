package main

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/failslow/falcon"
)

// fourByFour is a job of 4 replicas and 4 stages on 8 nodes of 2 GPUs, with a
// slow link inside the gradient ring of stage 0.
const fourByFour = `{"layout":{"tp":1,"dp":4,"pp":4},"nodes":["n0","n1","n2","n3","n4","n5","n6","n7"],"gpus_per_node":2,
"self_ms":{"n0.g0":20,"n2.g0":20,"n4.g0":20,"n6.g0":20},"bandwidth_gbps":{"n0-n1":50,"n2-n3":400},"micro_batches":8,
"model":{"dp_mb":1000,"pp_mb":10,"tp_mb":0}}`

func topologyOf(t *testing.T, in string) topologyPlan {
	t.Helper()
	text, err := planWith("topology", in)
	if err != nil {
		t.Fatal(err)
	}
	var out topologyPlan
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

func TestPlanTopologyMovesSlowLink(t *testing.T) {
	out := topologyOf(t, fourByFour)
	if !slices.Contains(out.Links["left_dp"], falcon.NewLink("n0", "n1")) ||
		len(out.Swaps) == 0 ||
		out.Reason != "" {
		t.Errorf("the slow link stays in its ring: %+v", out)
	}
	// Healthy: 11 micro-batches of 20 ms, 3 stages' messages there and back at
	// 0.2 ms or more, and a ring of 6 quarters of 1,000 MB at 50 MB/ms.
	healthy := 11*20 + 6*250/50.0
	if out.AfterMs < healthy || out.AfterMs > healthy+20 || out.BeforeMs < healthy+150 {
		t.Errorf("%v ms before, %v ms after, healthy without messages %v ms",
			out.BeforeMs, out.AfterMs, healthy)
	}
	if len(out.Placement) != 16 || out.MovedMB <= 0 {
		t.Errorf("%+v", out)
	}
	again := topologyOf(t, fourByFour)
	if !slices.Equal(again.Placement, out.Placement) {
		t.Error("the same problem has two answers")
	}
}

// Stragglers of two replicas: the example of one replica against one stage,
// whose best places are the interior stages of one replica.
func TestPlanTopologyGathersStragglers(t *testing.T) {
	var nodes, self []string
	for i := range 16 {
		n := "m" + string(rune('a'+i))
		nodes = append(nodes, `"`+n+`"`)
		ms := "3"
		if i == 12 || i == 13 {
			ms = "6"
		}
		self = append(self, `"`+n+`.g0":`+ms)
	}
	in := `{"layout":{"tp":1,"dp":4,"pp":4},"nodes":[` +
		strings.Join(nodes, ",") +
		`],"gpus_per_node":1,"self_ms":{` +
		strings.Join(self, ",") +
		`},"micro_batches":[8,8,8,8],"model":{"dp_mb":0,"pp_mb":0}}`
	out := topologyOf(t, in)
	if math.Abs(out.BeforeMs-3*19) > 1e-6 ||
		math.Abs(out.SplitOnlyMs-3*14) > 1e-6 ||
		out.AfterMs > 3*13 ||
		len(out.Replicas) != 1 {
		t.Errorf("%+v", out)
	}
	all := 0
	for _, m := range out.MicroBatches {
		all += int(m)
	}
	if all != 32 {
		t.Errorf("micro-batches %v are not the batch", out.MicroBatches)
	}
}

func TestPlanTopologyStays(t *testing.T) {
	out := topologyOf(t, strings.Replace(fourByFour, `"n0-n1":50`, `"n0-n1":400`, 1))
	if out.Reason == "" ||
		len(out.Swaps) != 0 ||
		out.BeforeMs != out.AfterMs ||
		len(out.Placement) != 16 {
		t.Errorf("%+v", out)
	}
}

func TestPlanTopologyOnBadInput(t *testing.T) {
	for in, want := range map[string]string{
		``:                                  "empty",
		`{}`:                                "layout is missing",
		`{"layout":{"tp":1,"dp":0,"pp":1}}`: "at least 1",
		`{"layout":{"tp":1000000000,"dp":1000000000,"pp":1000000000}}`:                                                                          "limit",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a"],"gpus_per_node":1}`:                                                                     "hold no job of 2 ranks",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a","a"],"gpus_per_node":1}`:                                                                 "named twice",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a","b"],"gpus_per_node":1}`:                                                                 "micro_batches must be",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a","b"],"gpus_per_node":1,"micro_batches":4}`:                                               "self_ms is missing",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a","b"],"gpus_per_node":1,"micro_batches":4,"self_ms":{"c.g0":1}}`:                          "holds no rank",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a","b"],"gpus_per_node":1,"micro_batches":4,"self_ms":{"a.g0":-1}}`:                         "positive time",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a","b"],"gpus_per_node":1,"micro_batches":4,"bandwidth_gbps":{"a":1},"self_ms":{"a.g0":1}}`: `"a"`,
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a","b"],"gpus_per_node":1,"micro_batches":4,"placement":["a.g0","a.g0"]}`:                   "ranks 0 and 1",
		`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a","b"],"gpus_per_node":1,"micro_batches":4,"placement":["a.g0","c.g0"]}`:                   "no GPU of the nodes",
		`{"layout":{"tp":2,"dp":2,"pp":1},"nodes":["a","b","c","d"],"gpus_per_node":1,"micro_batches":4,"self_ms":{"a.g0":1,"b.g0":2}}`:         "tensor-parallel",
	} {
		out, err := planWith("topology", in)
		if err == nil ||
			out != "" ||
			!strings.Contains(err.Error(), want) ||
			strings.ContainsAny(err.Error(), "\n\x1b") ||
			!errors.Is(err, errUsage) {
			t.Errorf("%q: output %q, error %v; want one sentence with %q and exit 2", in, out, err, want)
		}
	}
}

// A link's name may hold dashes of the nodes' own names.
func TestPlanTopologyNodeNamesWithDashes(t *testing.T) {
	in := strings.NewReplacer(
		`"n0"`,
		`"rack-1-a"`,
		`n0.g`,
		`rack-1-a.g`,
		`"n0-n1"`,
		`"rack-1-a-n1"`,
	).Replace(fourByFour)
	if out, err := planWith("topology", in); err != nil || !strings.Contains(out, `"swaps":[["`) {
		t.Errorf("%s, %v", out, err)
	}
}

func FuzzPlanTopology(f *testing.F) {
	f.Add(fourByFour)
	f.Add(`{"layout":{"tp":1,"dp":2,"pp":1},"nodes":["a","b"],"gpus_per_node":1,"micro_batches":[4,2],"self_ms":{"a.g0":1,"b.g0":3},"stage_ms":[1],"state_mb":3}`)
	f.Fuzz(func(t *testing.T, in string) { oneAnswer(t, in, planTopology) })
}

// Where single groups change places, the plan names them by their devices.
func TestPlanTopologyOfSingleGroups(t *testing.T) {
	in := `{"layout":{"tp":1,"dp":4,"pp":2},"nodes":["n0","n1"],"gpus_per_node":4,"self_ms":{"n0.g0":25,"n0.g1":10,"n1.g0":10,"n1.g1":25},"micro_batches":8,"model":{"dp_mb":1,"pp_mb":1},"inter_gbps":400}`
	out, err := planWith("topology", in)
	if err != nil ||
		!strings.Contains(out, `"swaps":[],"groups":[["n`) ||
		!strings.Contains(out, `"replicas_with_stragglers":[0]`) {
		t.Errorf("%s, %v", out, err)
	}
}
