package main

import (
	"encoding/json"
	"errors"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate/topology"
)

// planRanksMost bounds the ranks of a topology problem, so that a few bytes of
// input can't ask for a machine's memory.
const planRanksMost = 1 << 17

func planTopologyCommand() *cobra.Command {
	return problemCommand("topology FILE", "Which node should hold which ranks (S3)? - reads standard input",
		`  falcon plan topology job.json

with job.json such as
  {"layout":{"tp":1,"dp":4,"pp":2},"nodes":["n0","n1","n2","n3"],"gpus_per_node":2,
   "self_ms":{"n0.g0":20,"n1.g1":40},"bandwidth_gbps":{"n0-n1":50,"n0-n2":400},
   "micro_batches":8,"model":{"dp_mb":500,"pp_mb":10}}

placement (device by rank) defaults to node after node. self_ms is forward and
backward of one micro-batch; devices not named are as fast as the others of
their stage, a device is slow against those. stage_ms gives the stages' healthy
times. Links not named have the bandwidth of the fastest one, or inter_gbps.
micro_batches are each replica's, a number or a list. model: MB of one rank per
iteration (dp_mb), of one activation (pp_mb), of one rank and micro-batch (tp_mb).
Optional: intra_gbps, latency_ms, rest_ms, state_mb (of one rank, default dp_mb),
min_gain. iteration_ms_after is with the split in micro_batches,
iteration_ms_after_swap with the present one, iteration_ms_before_split is what a
split alone would bring.`, planTopology)
}

// topologyProblem is the input.
type topologyProblem struct {
	Layout       *falcon.Layout     `json:"layout" need:"give tp, dp and pp"`
	Nodes        []falcon.Node      `json:"nodes"`
	GPUsPerNode  int                `json:"gpus_per_node"`
	Placement    falcon.Placement   `json:"placement"`
	SelfMs       map[string]float64 `json:"self_ms"`
	StageMs      []float64          `json:"stage_ms"`
	Bandwidth    map[string]float64 `json:"bandwidth_gbps"`
	InterGbps    float64            `json:"inter_gbps"`
	IntraGbps    float64            `json:"intra_gbps"`
	LatencyMs    float64            `json:"latency_ms"`
	RestMs       float64            `json:"rest_ms"`
	StateMB      float64            `json:"state_mb"`
	MinGain      float64            `json:"min_gain"`
	MicroBatches json.RawMessage    `json:"micro_batches"`
	Model        struct {
		DPMB float64 `json:"dp_mb"`
		PPMB float64 `json:"pp_mb"`
		TPMB float64 `json:"tp_mb"`
	} `json:"model"`

	known map[falcon.Node]bool // Nodes, once checked
}

type topologyPlan struct {
	Placement falcon.Placement `json:"placement"`
	Swaps     [][2]falcon.Node `json:"swaps"`
	// whose tensor-parallel groups change places, where whole nodes do not
	Groups       [][2]falcon.Device       `json:"groups,omitempty"`
	BeforeMs     float64                  `json:"iteration_ms_before"`
	AfterMs      float64                  `json:"iteration_ms_after"`
	SplitOnlyMs  float64                  `json:"iteration_ms_before_split"`
	SwapOnlyMs   float64                  `json:"iteration_ms_after_swap"`
	MicroBatches []int32                  `json:"micro_batches"`
	MovedMB      float64                  `json:"moved_mb"`
	Links        map[string][]falcon.Link `json:"links"`
	Stages       []int                    `json:"stages_with_stragglers"`
	Replicas     []int                    `json:"replicas_with_stragglers"`
	// by the model; false = the best of a bounded search
	Optimal bool   `json:"optimal"`
	Reason  string `json:"reason,omitempty"`
}

func planTopology(in *topologyProblem) (any, error) {
	p, err := in.solverProblem()
	if err != nil {
		return nil, err
	}
	plan, err := topology.Search(p)
	switch {
	case errors.Is(err, topology.ErrNoGain):
		return unchangedPlan(p, strings.TrimPrefix(err.Error(), "topology: ")), nil
	case err != nil:
		return nil, &inputError{
			text:  strings.TrimPrefix(strings.TrimPrefix(err.Error(), "topology: "), "bad problem: "),
			cause: err,
		}
	}
	out := topologyPlan{
		Placement:    plan.Placement,
		Swaps:        plan.Preview.Swaps,
		Groups:       plan.Preview.Groups,
		BeforeMs:     roundToNano(plan.BeforeMs),
		AfterMs:      roundToNano(plan.AfterSplitMs),
		SplitOnlyMs:  roundToNano(plan.BeforeSplitMs),
		SwapOnlyMs:   roundToNano(plan.AfterMs),
		MicroBatches: plan.MicroBatches,
		MovedMB:      plan.Preview.MovedMB,
		Stages:       listed(plan.Preview.Stages),
		Replicas:     listed(plan.Preview.Replicas),
		Optimal:      plan.Exact,
		Links:        map[string][]falcon.Link{},
	}
	for _, d := range []falcon.Dimension{falcon.DimDP, falcon.DimPP} {
		out.Links["left_"+string(d)] = listed(plan.Preview.Left[d])
		out.Links["joined_"+string(d)] = listed(plan.Preview.Joined[d])
	}
	return out, nil
}

// unchangedPlan is the plan to leave every node where it is.
func unchangedPlan(p topology.Problem, why string) topologyPlan {
	ms := roundToNano(p.Model.Iteration(p.Now, p.MicroBatches).IterationMs)
	return topologyPlan{
		Placement:    p.Now,
		Swaps:        [][2]falcon.Node{},
		BeforeMs:     ms,
		AfterMs:      ms,
		SplitOnlyMs:  ms,
		SwapOnlyMs:   ms,
		MicroBatches: p.MicroBatches,
		Links: map[string][]falcon.Link{
			"left_dp":   {},
			"joined_dp": {},
			"left_pp":   {},
			"joined_pp": {},
		},
		Stages:   []int{},
		Replicas: []int{},
		Reason:   why,
	}
}

// roundToNano rounds milliseconds to nanoseconds: the order of a sum must not show.
func roundToNano(ms float64) float64 {
	return math.Round(ms*1e6) / 1e6
}

// listed is v, as a list that JSON writes as one.
func listed[T any](v []T) []T {
	if v == nil {
		return []T{}
	}
	return v
}
