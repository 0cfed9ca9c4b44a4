package ladder

import (
	"fmt"
	"slices"
	"strings"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/phrase"
	"github.com/failslow/falcon/tui/roster"
)

// Plan is what a rung would do to the job, for telling two plans apart.
type Plan struct {
	counts      []int32 // micro-batches by replica
	swaps       []string
	nodes       []string // of the placement, sorted
	predictedMs float64  // an iteration
	overheadMs  float64
}

// PlanOf is an action's plan.
func PlanOf(a *falconv1.Action) Plan {
	return Plan{
		counts:      a.GetMicroBatches(),
		swaps:       swapPairs(a.GetPreview()),
		nodes:       nodesOfDevices(a.GetPlacement()),
		predictedMs: a.GetPredictedMs(),
		overheadMs:  a.GetOverheadMs(),
	}
}

// PlanOfRung is the plan that taking a rung now would carry out.
func PlanOfRung(g *falconv1.RungView) Plan {
	return Plan{
		counts:      g.GetMicroBatches(),
		swaps:       swapPairs(g.GetPreview()),
		predictedMs: g.GetPredictedMs(),
		overheadMs:  g.GetOverheadMs(),
	}
}

func swapPairs(v *falconv1.Preview) []string {
	var out []string
	for _, s := range slices.Concat(v.GetSwaps(), v.GetGroups()) {
		out = append(out, s.GetA()+" with "+s.GetB())
	}
	return out
}

func nodesOfDevices(placement []string) []string {
	var out []string
	for _, d := range placement {
		out = append(out, roster.NodeOf(d))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// changesMost is how many replicas are listed one by one.
const changesMost = 8

// Changes describes how plan b differs from a, a line each; plans that differ in
// what is not shown here are said to be new.
func Changes(a, b Plan) []string {
	out := countChanges(a.counts, b.counts)
	out = append(out, setChanges("changes places: ", a.swaps, b.swaps)...)
	out = append(out, setChanges("runs on ", a.nodes, b.nodes)...)
	out = append(out, timeChange("predicted iteration", a.predictedMs, b.predictedMs)...)
	out = append(out, timeChange("price of switching", a.overheadMs, b.overheadMs)...)
	if len(out) == 0 {
		return []string{"it does the same, and was planned again for the job as it is now"}
	}
	return out
}

func countChanges(a, b []int32) []string {
	if len(a) != len(b) {
		return []string{fmt.Sprintf("replicas with a share: %d → %d", len(a), len(b))}
	}
	var out []string
	for i := range a {
		if a[i] != b[i] {
			out = append(out, fmt.Sprintf("replica %d: %d → %d micro-batches", i, a[i], b[i]))
		}
	}
	if rest := len(out) - changesMost; rest > 0 {
		out = append(out[:changesMost], fmt.Sprintf("and %d replicas more", rest))
	}
	return out
}

func setChanges(what string, a, b []string) []string {
	var out []string
	if gone := withoutNames(a, b); len(gone) > 0 {
		out = append(out, "no longer "+what+fewNames(gone))
	}
	if fresh := withoutNames(b, a); len(fresh) > 0 {
		out = append(out, "now "+what+fewNames(fresh))
	}
	return out
}

func withoutNames(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool {
		return slices.Contains(b, s)
	})
}

// timeChange leaves out what rounds to the same.
func timeChange(what string, a, b float64) []string {
	if x, y := phrase.Ms(a), phrase.Ms(b); x != y {
		return []string{strings.Join([]string{what, ": ", x, " → ", y}, "")}
	}
	return nil
}
