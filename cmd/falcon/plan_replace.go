package main

import (
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/mitigate"
)

func planReplaceCommand() *cobra.Command {
	return problemCommand("replace FILE", "Ignore, rebalance, drop or replace a slow rank; - reads standard input",
		`  echo '{"ranks":1000,"step_ms":200,"slow_ratio":1.4,"remaining_s":864000,"replace_s":90,"spares":1}' | falcon plan replace -

Lost is healthy training lost within remaining_s of the clock; delay is how much
later the work of remaining_s healthy seconds ends. Optional: drop_s,
replica_ranks (leave with a dropped rank, default 1), micro_batches (of one rank
and step: work moves in such pieces), spare_wait_s (until a node is to be had
when spares is 0).`, planReplace)
}

// replaceProblem is the input.
type replaceProblem struct {
	Ranks        *int     `json:"ranks" need:"give the number of ranks of the job"`
	StepMs       *float64 `json:"step_ms" need:"give the healthy time of one step"`
	SlowRatio    *float64 `json:"slow_ratio" need:"give the slow rank's step over the healthy one, such as 1.4"`
	RemainingS   *float64 `json:"remaining_s" need:"give how long the run still lasts"`
	ReplaceS     *float64 `json:"replace_s" need:"give how long the job stands still while a node is replaced"`
	Spares       int      `json:"spares"`
	ReplicaRanks int      `json:"replica_ranks"`
	DropS        float64  `json:"drop_s"`
	SpareWaitS   float64  `json:"spare_wait_s"`
	MicroBatches int      `json:"micro_batches"`
}

// replacePlan is the output; null = never, or no end.
type replacePlan struct {
	Best             mitigate.RemedyName `json:"best"`
	BreakEvenS       *float64            `json:"break_even_s"` // run length from which on replace beats drop
	BreakEvenSteps   *float64            `json:"break_even_steps"`
	BreakEvenAgainst map[string]*float64 `json:"break_even_against_s"`
	Remedies         []remedyView        `json:"remedies"`
}

type remedyView struct {
	Name          mitigate.RemedyName `json:"name"`
	Available     bool                `json:"available"`
	Reason        string              `json:"reason"`
	StepMs        float64             `json:"step_ms"`
	DownS         float64             `json:"down_s"`
	Throughput    float64             `json:"throughput"`
	LostS         float64             `json:"lost_s"`
	LostGPUHours  float64             `json:"lost_gpu_hours"`
	DelayS        *float64            `json:"delay_s"`
	DelayGPUHours *float64            `json:"delay_gpu_hours"`
}

func planReplace(in *replaceProblem) (any, error) {
	price, err := mitigate.Replacement{
		Ranks: *in.Ranks, StepMs: *in.StepMs, SlowRatio: *in.SlowRatio, RemainingS: *in.RemainingS, ReplaceS: *in.ReplaceS,
		Spares: in.Spares, ReplicaRanks: in.ReplicaRanks, DropS: in.DropS, SpareWaitS: in.SpareWaitS, MicroBatches: in.MicroBatches,
	}.Price()
	if err != nil {
		return nil, &inputError{text: strings.TrimPrefix(err.Error(), "mitigate: "), cause: err}
	}
	return replaceView(price, *in.StepMs), nil
}

func replaceView(p mitigate.ReplacementPrice, stepMs float64) replacePlan {
	out := replacePlan{
		Best: p.Best, BreakEvenS: finiteOrNil(p.OverDropS), BreakEvenSteps: finiteOrNil(p.OverDropS * 1000 / stepMs),
		BreakEvenAgainst: map[string]*float64{
			string(mitigate.RemedyDrop): finiteOrNil(p.OverDropS), string(mitigate.RemedyIgnore): finiteOrNil(p.OverIgnoreS),
			string(mitigate.RemedyRebalance): finiteOrNil(p.OverRebalanceS),
		},
	}
	for _, r := range p.Remedies {
		out.Remedies = append(out.Remedies, remedyView{
			r.Name, r.Available, r.Reason, r.StepMs, r.DownS, r.Throughput, r.LostS, r.LostGPUHours, finiteOrNil(r.DelayS), finiteOrNil(r.DelayGPUHours),
		})
	}
	return out
}

// finiteOrNil is nil for what JSON has no number for.
func finiteOrNil(v float64) *float64 {
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}
