package phrase

import (
	"fmt"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// deciders names what decides that the pace changed, by ChangeDecision.by.
var deciders = map[string]string{
	"bocd":       "the change-point filter",
	"reference":  "the level, held against what it was",
	"shift":      "the small-shift detector, which has no posterior",
	"early":      "an early window, before verification",
	"throughput": "the throughput, below the job's best without an onset",
	"windows":    "profile windows, without a change of the iteration time",
}

// Decided says what decided an alarm, and by which medians.
func Decided(d *falconv1.ChangeDecision) string {
	by, known := deciders[d.GetBy()]
	if !known {
		by = "something that this console does not know: " + d.GetBy()
	}
	if d.GetBy() == "bocd" && d.GetRank() >= 0 {
		by = fmt.Sprintf("the filter of rank %d", d.GetRank())
	}
	text := fmt.Sprintf("%s at %s, decided at %s by %s: ",
		d.GetKind(), Iteration(d.GetIteration()), Iteration(d.GetDecidedIteration()), by)
	if d.GetKind() == "jitter" {
		text = fmt.Sprintf("alarm at %s, turned down at %s: ",
			Iteration(d.GetIteration()), Iteration(d.GetDecidedIteration()))
	}
	text += fmt.Sprintf("%s → %s", Ms(d.GetBeforeMs()), Ms(d.GetAfterMs()))
	if n := d.GetPoints(); n > 0 {
		text += fmt.Sprintf(", %d iterations", n)
	}
	if d.GetDrift() {
		text += ", gradual"
	}
	return text + accused(d)
}

// accused names the ranks of a decision by windows.
func accused(d *falconv1.ChangeDecision) string {
	if d.GetWindow() == 0 {
		return ""
	}
	text := fmt.Sprintf("; window %d", d.GetWindow())
	if len(d.GetRanks()) > 0 {
		const most = 4
		text += " accuses " + Ranks(d.GetRanks(), most)
	}
	if d.GetConfirming() {
		text += ", as counters do"
	}
	return text
}

// DecidedOn says on which state of the filter an alarm was decided; "" where no filter took part.
func DecidedOn(d *falconv1.ChangeDecision, window int32) string {
	f := d.GetFilter()
	if f == nil {
		return ""
	}
	within := ""
	if window > 0 {
		within = fmt.Sprintf(" ≤%d steps", window)
	}
	text := fmt.Sprintf("P(change%s) %.3f, likeliest stretch %s; fed as (ms - %.1f)/%.2f since %s", within,
		f.GetProbability(), Count(int64(f.GetMapRunLength())), f.GetCentreMs(),
		f.GetScaleMs(), Iteration(f.GetFrom()))
	switch r := f.GetRemoved(); len(r) {
	case 0:
	case 1:
		text += fmt.Sprintf("; %s removed (%s)",
			Iteration(r[0].GetIteration()), Ms(r[0].GetMs()))
	default:
		text += fmt.Sprintf("; %d removed, %s to %s",
			len(r), Iteration(r[0].GetIteration()), Iteration(r[len(r)-1].GetIteration()))
	}
	return text
}
