package enginetest

import (
	"fmt"
	"slices"
	"time"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Variants of the story: another rung is proposed than S2, an automatic policy
// has a countdown under way, other operators look.

// CountdownS is the countdown of Options.Auto, in seconds from Start plus the
// proposal's iteration.
const CountdownS = 45

// Look has other operators look at the console from now on.
func (e *Engine) Look(list ...*falconv1.Operator) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.operators = list
}

// Elsewhere takes a decision as another operator would.
func (e *Engine) Elsewhere(approve bool, by, reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.decide(approve, by, reason)
}

// undo is how many iterations an approval waits before it goes out.
func (o *Options) undo() int64 {
	return int64(time.Duration(o.Undo) * time.Second / iteration)
}

// proposes is the rung that the story proposes.
func (o *Options) proposes() string {
	if o.Rung == "" {
		return "S2"
	}
	return o.Rung
}

// preview is what S3 would change: the culprit's node against the next one.
func (o *Options) preview() *falconv1.Preview {
	slow, other := o.culprit()/2, int32(o.world()/2-1)
	return &falconv1.Preview{
		Swaps: []*falconv1.NodeSwap{{
			A: fmt.Sprintf("n%d", slow),
			B: fmt.Sprintf("n%d", other),
		}},
		Left: []*falconv1.LinksOf{
			{Dimension: "dp", Links: []string{"n0-n1"}},
			{Dimension: "pp", Links: []string{"n1-n3"}},
		},
		Joined:    []*falconv1.LinksOf{{Dimension: "dp", Links: []string{"n0-n3"}}},
		MovedMb:   1240,
		CopyMs:    820,
		Stages:    []int32{1},
		Replicas:  []int32{2, 3},
		TrafficMb: map[string]float64{"dp": 960, "pp": 48},
	}
}

// climb makes the ladder propose what the options describe.
func (o *Options) climb(rungs []*falconv1.RungView) {
	for _, g := range rungs {
		if g.Rung == "S3" && o.proposes() == "S3" {
			g.Applicable = true
			g.Reason = "exchanges n1 with n3"
			g.OverheadMs = 900
			g.GainMs = 120
			g.PredictedMs = 280
			g.BreakEven, g.PlanHash, g.Approval, g.Preview = 5, "77e1b0c3", "person", o.preview()
			g.IfWrong = "a failure before the ranks' second vote leaves the job as it was"
		}
		if o.Auto && g.Rung == "S2" {
			g.Approval, g.TakenHour = "auto", 2
		}
	}
}

// other turns the S2 proposal into that of the rung in the options.
func (o *Options) other(a *falconv1.Action) {
	a.Id = fmt.Sprintf("INC-0001/%s/1", o.proposes())
	switch a.Rung = o.proposes(); a.Rung {
	case "S3":
		a.PlanHash = "77e1b0c3"
		a.MicroBatches = nil
		a.Previous = nil
		a.Preview = o.preview()
		a.PredictedMs = 280
		a.OverheadMs = 900
	case "S4":
		a.PlanHash = "51d7aa02"
		a.MicroBatches = nil
		a.Previous = nil
		a.Variant = "restart"
		a.PredictedMs = HealthyMs
		a.OverheadMs = 90_000
		a.Placement = slices.Repeat([]string{"n5.g0"}, o.world())
	}
	if o.Auto && a.State == "proposed" {
		a.DeadlineUnixNs = o.at(Proposed).Add(CountdownS * time.Second).UnixNano()
	}
}
