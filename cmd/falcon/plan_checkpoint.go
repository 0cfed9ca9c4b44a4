package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/failslow/falcon/recovery/overhead"
)

func planCheckpointCommand() *cobra.Command {
	return problemCommand("checkpoint FILE", "How often should a job save, and what do its failures cost? - reads standard input",
		`  echo '{"period_s":2592000,"failures":30,"k0_s":20,"s0_s":600}' | falcon plan checkpoint -

All in seconds, the interval too: F(t) = failures * (s0 + t/2) + period/t * k0.
k0_s is how long training stands still for one checkpoint, s0_s a restart from
one. Optional: step_s (then t_star_steps says t* in steps), and for recovery
from replicas replica_s0_s, replica_s1_s (redone training, default step_s) and
checkpoint_share (of failures that leave a shard without a replica).`, planCheckpoint)
}

// checkpointProblem is the input.
type checkpointProblem struct {
	PeriodS  *float64 `json:"period_s" need:"give the seconds of training that are judged"`
	Failures *float64 `json:"failures" need:"give how many the period has"`
	SaveS    *float64 `json:"k0_s" need:"give how long training stands still for one checkpoint"`
	RestartS *float64 `json:"s0_s" need:"give how long a restart from a checkpoint takes"`
	StepS    float64  `json:"step_s"`
	RecoverS *float64 `json:"replica_s0_s"`
	RedoS    *float64 `json:"replica_s1_s"`
	Share    float64  `json:"checkpoint_share"`
}

// checkpointPlan is the output; null = never, or no end.
type checkpointPlan struct {
	BestS     *float64      `json:"t_star_s"`
	BestSteps *float64      `json:"t_star_steps,omitempty"`
	LeastS    float64       `json:"f_min_s"`
	Share     float64       `json:"f_min_share"` // of the period
	Curve     []curvePoint  `json:"curve"`
	Replicas  *replicasPlan `json:"replicas,omitempty"`
}

type curvePoint struct {
	IntervalS float64 `json:"t_s"`
	TotalS    float64 `json:"f_s"`
	RestartS  float64 `json:"restart_s"`
	RedoneS   float64 `json:"redone_s"`
	SavedS    float64 `json:"saving_s"`
}

// replicasPlan is the same job with recovery from replicas; checkpoints are
// for the failures that leave no replica.
type replicasPlan struct {
	BestS  *float64 `json:"t_star_s"`
	LeastS float64  `json:"f_s"`
	Share  float64  `json:"f_share"`
	GainS  float64  `json:"gain_s"` // against f_min_s
}

func planCheckpoint(in *checkpointProblem) (any, error) {
	m := overhead.Model{PeriodS: *in.PeriodS, Failures: *in.Failures, SaveS: *in.SaveS, RestartS: *in.RestartS}
	if err := m.Check(); err != nil {
		return nil, modelError(err)
	}
	if !validQuantity(in.StepS) {
		return nil, errors.New("step_s must be a number that is not negative")
	}
	out := checkpointPlan{BestS: finiteOrNil(roundToNano(m.BestS())), LeastS: roundToNano(m.LeastS()), Share: m.LeastS() / m.PeriodS, Curve: in.overheadCurve(m)}
	if in.StepS > 0 {
		out.BestSteps = finiteOrNil(roundToNano(m.BestS() / in.StepS))
	}
	var err error
	out.Replicas, err = in.replicas(m)
	return out, err
}

func modelError(err error) error {
	return &inputError{text: strings.TrimPrefix(err.Error(), overhead.ErrModel.Error()+": "), cause: err}
}

// overheadCurve is F a decade to both sides of t*; where t* is none, up to the period.
func (in *checkpointProblem) overheadCurve(m overhead.Model) []curvePoint {
	const points = 21
	low, high := m.BestS()/10, m.BestS()*10
	if finiteOrNil(high) == nil || !(low > 0) {
		low, high = m.PeriodS/1000, m.PeriodS
	}
	out := make([]curvePoint, 0, points)
	for _, p := range m.Curve(low, high, points) {
		out = append(out, curvePoint{roundToNano(p.IntervalS), roundToNano(p.TotalS()), roundToNano(p.RestartS), roundToNano(p.RedoneS), roundToNano(p.SavedS)})
	}
	return out
}

// replicas is nil where the input does not ask for it.
func (in *checkpointProblem) replicas(m overhead.Model) (*replicasPlan, error) {
	if in.RecoverS == nil {
		if in.RedoS != nil || in.Share != 0 {
			return nil, errors.New("replica_s1_s and checkpoint_share need replica_s0_s: give how long a recovery from replicas takes")
		}
		return nil, nil
	}
	redo := in.StepS
	if in.RedoS != nil {
		redo = *in.RedoS
	}
	r := overhead.Replicas{RecoverS: *in.RecoverS, RedoS: redo, Share: in.Share}
	if err := r.Check(); err != nil {
		return nil, modelError(err)
	}
	rest, lost := m.WithReplicas(r)
	f := lost + rest.LeastS()
	return &replicasPlan{BestS: finiteOrNil(roundToNano(rest.BestS())), LeastS: roundToNano(f), Share: f / m.PeriodS, GainS: roundToNano(m.LeastS() - f)}, nil
}
