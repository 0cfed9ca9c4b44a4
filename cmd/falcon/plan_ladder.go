package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/mitigate"
	"github.com/failslow/falcon/tui/clean"
)

func planLadderCommand() *cobra.Command {
	return problemCommand(
		"ladder FILE",
		"Which rung should be taken now, which when (ski rental)? - reads standard input",
		`  echo '{"healthy_ms":200,"iterations":[400,400,400],"cause":"gpu_degradation","overheads_ms":{"S2":50,"S3":7000},"gains":{"S2":0.7}}' | falcon plan ladder -

iterations are times from the onset on, in ms. gains are shares of the slowdown
that a rung takes away (0 to 1); gains_ms says it per iteration instead. Optional:
taken (rungs taken already), policy (mode, cap, owner, rungs; default mode
approve), gpus (for lost GPU-hours).`,
		planLadder,
	)
}

// ladderProblem is the input.
type ladderProblem struct {
	HealthyMs   *float64                `json:"healthy_ms" need:"give the iteration time before the onset"`
	Iterations  []float64               `json:"iterations"`
	Cause       falcon.Cause            `json:"cause" need:"give the verdict's cause, such as gpu_degradation"`
	OverheadsMs map[falcon.Rung]float64 `json:"overheads_ms"`
	Gains       map[falcon.Rung]float64 `json:"gains"`
	GainsMs     map[falcon.Rung]float64 `json:"gains_ms"`
	Taken       []falcon.Rung           `json:"taken"`
	Policy      *falcon.Policy          `json:"policy"`
	GPUs        int                     `json:"gpus"`
}

type ladderPlan struct {
	Propose      *falcon.Rung      `json:"propose"` // null = wait
	Why          string            `json:"why"`
	ImpactMs     float64           `json:"impact_ms"`
	LossMs       float64           `json:"loss_ms_per_iteration"`
	LostGPUHours float64           `json:"lost_gpu_hours"`
	Rungs        []falcon.RungView `json:"rungs"`
}

func planLadder(in *ladderProblem) (any, error) {
	rental, err := in.rental()
	if err != nil {
		return nil, err
	}
	got, err := rental.Price()
	if err != nil {
		return nil, &inputError{
			text:  clean.String(strings.TrimPrefix(err.Error(), "mitigate: ")),
			cause: err,
		}
	}
	const msPerHour = 3.6e6
	out := ladderPlan{
		Why:          got.Why,
		ImpactMs:     got.ImpactMs,
		LossMs:       got.LossMs,
		LostGPUHours: got.ImpactMs * float64(in.GPUs) / msPerHour,
		Rungs:        got.Rungs,
	}
	if got.Propose != "" {
		out.Propose = &got.Propose
	}
	return out, nil
}

func (in *ladderProblem) rental() (mitigate.Rental, error) {
	if in.GPUs < 0 {
		return mitigate.Rental{}, fmt.Errorf("gpus is %d; give the number of GPUs of the job", in.GPUs)
	}
	policy := falcon.Policy{Mode: falcon.ModeApprove}
	if in.Policy != nil {
		policy = *in.Policy
	}
	return mitigate.Rental{
		HealthyMs:    *in.HealthyMs,
		IterationsMs: in.Iterations,
		Cause:        in.Cause,
		OverheadsMs:  in.OverheadsMs,
		Gains:        in.Gains,
		GainsMs:      in.GainsMs,
		Taken:        in.Taken,
		Policy:       policy,
	}, nil
}
