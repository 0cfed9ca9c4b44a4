// Package overhead is FlashRecovery's model of what failures cost (§II-C and
// §III-F): the time lost to recovery, to redone training and to saving
// checkpoints, the interval between checkpoints that loses least, and the same
// with replicas in the place of checkpoints.
//
// All times are seconds, the interval too: the paper calls t a number of steps
// and adds it to times; as seconds its equations hold as printed. It guarantees
// finite results for what Check accepts, except for the interval where nothing
// fails (never save: +Inf). It is pure arithmetic.
package overhead

import (
	"errors"
	"fmt"
	"math"
)

// ErrModel is wrapped by every error about a model that can't be.
var ErrModel = errors.New("overhead: bad model")

// Most bounds every number of a model.
const Most = 1e12

// Model is a job with periodic checkpoints.
type Model struct {
	PeriodS  float64 // d: the span of training that is judged
	Failures float64 // m: in the period
	SaveS    float64 // k0: for which training pauses for one checkpoint
	RestartS float64 // s0: from a failure to training again, by a restart from a checkpoint
}

// Check returns why the model is not possible; it wraps ErrModel.
func (m Model) Check() error {
	for _, v := range []struct {
		name  string
		value float64
	}{{"period_s", m.PeriodS}, {"failures", m.Failures}, {"k0_s", m.SaveS}, {"s0_s", m.RestartS}} {
		if !(v.value >= 0 && v.value <= Most) {
			return fmt.Errorf("%w: %s is %v; give a number from 0 to %g", ErrModel, v.name, v.value, Most)
		}
	}
	if m.PeriodS < 1 {
		return fmt.Errorf("%w: period_s is %v; give the seconds of training that are judged, at least 1", ErrModel, m.PeriodS)
	}
	return nil
}

// Loss is what a period loses, in seconds.
type Loss struct {
	RestartS float64 // m·s0
	RedoneS  float64 // m·s1, s1 = t/2: failures come at any time
	SavedS   float64 // (d/t)·k0
}

// TotalS is F.
func (l Loss) TotalS() float64 { return l.RestartS + l.RedoneS + l.SavedS }

// At is F(t) of equation 1 for an interval of t > 0 seconds between checkpoints.
func (m Model) At(t float64) Loss {
	return Loss{RestartS: m.Failures * m.RestartS, RedoneS: m.Failures * t / 2, SavedS: m.PeriodS / t * m.SaveS}
}

// BestS is t* of equation 3; 0 where saving costs nothing, +Inf where nothing fails.
func (m Model) BestS() float64 {
	if m.Failures == 0 {
		return math.Inf(1)
	}
	return math.Sqrt(2 * m.PeriodS * m.SaveS / m.Failures)
}

// LeastS is F_min of equation 4.
func (m Model) LeastS() float64 {
	return m.Failures*m.RestartS + math.Sqrt(2*m.PeriodS*m.SaveS*m.Failures)
}

// Replicas is recovery from data-parallel replicas (§III-F).
type Replicas struct {
	RecoverS float64 // s0': from a failure to training again
	RedoS    float64 // s1': redone training, at most about one step
	Share    float64 // of failures that leave some shard without a replica (§III-G, 1): those go back to a checkpoint
}

// Check returns why the figures are not possible; it wraps ErrModel.
func (r Replicas) Check() error {
	if !(r.RecoverS >= 0 && r.RecoverS <= Most && r.RedoS >= 0 && r.RedoS <= Most) {
		return fmt.Errorf("%w: replica_s0_s is %v and replica_s1_s is %v; give numbers from 0 to %g", ErrModel, r.RecoverS, r.RedoS, Most)
	}
	if !(r.Share >= 0 && r.Share <= 1) {
		return fmt.Errorf("%w: checkpoint_share is %v; give a share from 0 to 1", ErrModel, r.Share)
	}
	return nil
}

// WithReplicas is the model of the failures that still need a checkpoint, and
// what the others lose: F = m·(1 − c)·(s0' + s1') for them (equation 5, with a
// share c of failures without a replica), equations 1 to 4 with m·c failures
// for the rest. With c = 0 no checkpoint is needed.
func (m Model) WithReplicas(r Replicas) (rest Model, replicasS float64) {
	rest = m
	rest.Failures = m.Failures * r.Share
	return rest, m.Failures * (1 - r.Share) * (r.RecoverS + r.RedoS)
}

// Point is one point of the curve F(t).
type Point struct {
	IntervalS float64
	Loss
}

// Curve is F at n ≥ 2 intervals from lowS to highS > lowS > 0, evenly spaced by ratio.
func (m Model) Curve(lowS, highS float64, n int) []Point {
	out := make([]Point, 0, n)
	for i := range n {
		t := lowS * math.Pow(highS/lowS, float64(i)/float64(n-1))
		out = append(out, Point{t, m.At(t)})
	}
	return out
}
