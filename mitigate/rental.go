package mitigate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/failslow/falcon"
)

// ErrRental is wrapped by every error about an incident that can't be priced.
var ErrRental = errors.New("mitigate: bad incident")

// recentMost is how many of the newest iterations give the present loss.
const recentMost = 8

// rentalMost bounds times in ms and shares, so that sums stay exact.
const rentalMost = 1e12

// Rental is one incident in numbers, what FALCON's algorithm 1 (§5.2) decides on.
type Rental struct {
	HealthyMs    float64
	IterationsMs []float64 // from the onset on, pauses taken out
	Cause        falcon.Cause
	OverheadsMs  map[falcon.Rung]float64 // of S2 to S4; a rung without one can't be taken
	Gains        map[falcon.Rung]float64 // predicted, as shares of the present loss; absent = unknown
	GainsMs      map[falcon.Rung]float64 // the same per iteration; goes before Gains
	Taken        []falcon.Rung
	Policy       falcon.Policy
}

// Rented is the ladder of a Rental. BreakEven of its rungs is the number of iterations since the
// onset after which the impact equals the overhead: when algorithm 1 takes them.
type Rented struct {
	ImpactMs float64           // Σ(ms − healthy) so far
	LossMs   float64           // per iteration at present
	Rungs    []falcon.RungView // S1, then by overhead
	Propose  falcon.Rung       // to be proposed now; empty = wait
	Why      string
}

// Price is algorithm 1 at the end of the iterations: a rung is due once the
// impact since the onset equals its overhead, the cheapest one that can help
// first. It wraps ErrRental and ErrBadPolicy.
func (r Rental) Price() (Rented, error) {
	if err := r.validate(); err != nil {
		return Rented{}, err
	}
	out := Rented{}
	for _, ms := range r.IterationsMs {
		out.ImpactMs += max(0, ms-r.HealthyMs)
	}
	recent := r.IterationsMs[max(0, len(r.IterationsMs)-recentMost):]
	now := r.HealthyMs
	if len(recent) > 0 {
		now = falcon.Median(slices.Clone(recent))
	}
	out.LossMs = max(0, now-r.HealthyMs)
	for _, rung := range []falcon.Rung{falcon.RungS2, falcon.RungS3, falcon.RungS4} {
		out.Rungs = append(out.Rungs, r.rungView(rung, now, out))
	}
	slices.SortStableFunc(out.Rungs, func(a, b falcon.RungView) int {
		return cmp.Compare(a.OverheadMs, b.OverheadMs)
	})
	ignore := falcon.RungView{
		Rung:       falcon.RungS1,
		Applicable: true,
		Reason:     "ignore and wait: free, gains nothing",
		ImpactMs:   out.ImpactMs,
		PredictMs:  now,
		Current:    len(r.Taken) == 0,
		Approval:   falcon.ApprovalAuto,
	}
	r.chooseRung(&out)
	out.Rungs = slices.Insert(out.Rungs, 0, ignore)
	return out, nil
}

func (r Rental) validate() error {
	bad := func(v float64) bool { return !(v >= 0) || v > rentalMost }
	if !(r.HealthyMs > 0) || bad(r.HealthyMs) {
		return fmt.Errorf("%w: healthy_ms %v is no positive time", ErrRental, r.HealthyMs)
	}
	for i, ms := range r.IterationsMs {
		if bad(ms) {
			return fmt.Errorf("%w: iterations[%d] is %v, no time", ErrRental, i, ms)
		}
	}
	for name, m := range map[string]map[falcon.Rung]float64{
		"overheads_ms": r.OverheadsMs,
		"gains_ms":     r.GainsMs,
		"gains":        r.Gains,
	} {
		for rung, ms := range m {
			switch {
			case rung.Level() < 2 || bad(ms):
				return fmt.Errorf("%w: %s of %q is %v; give S2, S3 and S4 numbers that are not negative",
					ErrRental, name, rung, ms)
			case name == "gains" && ms > 1:
				return fmt.Errorf(
					"%w: gains of %s is %v; give the share of the slowdown that it takes away, 0 to 1, or gains_ms",
					ErrRental, rung, ms,
				)
			}
		}
	}
	switch r.Cause {
	case falcon.CauseGPU, falcon.CauseCPU, falcon.CauseNetwork, falcon.CauseFacility,
		falcon.CauseNotHardware, falcon.CauseUnknown:
	default:
		return fmt.Errorf(
			"%w: cause %q is none of gpu_degradation, cpu_contention, network_congestion, facility, not_hardware, unknown",
			ErrRental, r.Cause,
		)
	}
	for _, t := range r.Taken {
		if t.Level() < 2 {
			return fmt.Errorf("%w: taken names %q; give S2, S3 or S4", ErrRental, t)
		}
	}
	return ValidatePolicy(r.Policy)
}

// rungView prices one rung; nowMs is the present iteration time.
func (r Rental) rungView(rung falcon.Rung, nowMs float64, so Rented) falcon.RungView {
	overhead, known := r.OverheadsMs[rung]
	v := falcon.RungView{
		Rung:       rung,
		OverheadMs: overhead,
		ImpactMs:   so.ImpactMs,
		BreakEven:  falcon.NoIteration,
		Approval:   approval(r.Policy, rung),
		Current:    slices.Contains(r.Taken, rung),
		PredictMs:  nowMs,
	}
	gain, announced := r.GainsMs[rung]
	if share, ok := r.Gains[rung]; ok && !announced {
		gain = share * so.LossMs
		announced = true
	}
	v.GainMs = gain
	v.PredictMs = max(0, nowMs-gain)
	located := &incidentState{
		incident: falcon.Incident{
			State:   falcon.IncidentLocated,
			Verdict: falcon.Verdict{Cause: r.Cause},
		},
	}
	switch err := causeHelped(located, rung); {
	case err != nil:
		v.Reason = err.Error()
	case !known:
		v.Reason = "its overhead is not known"
	case announced && gain == 0:
		v.Reason = "it would gain nothing"
	case v.Approval == falcon.ApprovalNever:
		v.Reason = "policy forbids it"
	default:
		v.Applicable = true
		v.Reason = reasons[rung]
	}
	if known {
		v.BreakEven = r.breakEven(overhead, so)
		v.ClockMs = max(0, overhead-so.ImpactMs)
		if so.LossMs > 0 {
			v.DueInMs = min(v.ClockMs/so.LossMs*nowMs, 1e15)
		}
	}
	return v
}

var reasons = map[falcon.Rung]string{
	falcon.RungS2: "moves micro-batches to faster replicas",
	falcon.RungS3: "moves nodes to other places of the job",
	falcon.RungS4: "checkpoints and restarts on healthy nodes",
}

// breakEven is the number of iterations since the onset at which the impact
// equals the overhead: as it was, or at the present loss from now on.
func (r Rental) breakEven(overheadMs float64, so Rented) int64 {
	sum := 0.0
	for i, ms := range r.IterationsMs {
		if sum >= overheadMs {
			return int64(i)
		}
		sum += max(0, ms-r.HealthyMs)
	}
	if sum >= overheadMs {
		return int64(len(r.IterationsMs))
	}
	if !(so.LossMs > 0) {
		return falcon.NoIteration
	}
	const most = 1e15
	return int64(len(r.IterationsMs)) + int64(min(most, math.Ceil((overheadMs-sum)/so.LossMs)))
}

// chooseRung says which rung to propose now; out.Rungs come by overhead.
func (r Rental) chooseRung(out *Rented) {
	out.Why = "no rung that can help is left"
	for i := range out.Rungs {
		v := &out.Rungs[i]
		if !v.Applicable || v.Current {
			continue
		}
		v.Next = true
		switch {
		case r.Policy.Mode == falcon.ModeObserve:
			out.Why = "the mode is observe: nothing is proposed"
		case r.Policy.Frozen:
			out.Why = "actions are frozen: nothing is proposed"
		case v.ClockMs > 0:
			out.Why = fmt.Sprintf("%.0f ms lost so far, %s costs about %.0f ms: wait",
				out.ImpactMs, v.Rung, v.OverheadMs)
		default:
			out.Propose = v.Rung
			out.Why = fmt.Sprintf("%.0f ms lost so far, %s costs about %.0f ms", out.ImpactMs, v.Rung, v.OverheadMs)
		}
		return
	}
}
