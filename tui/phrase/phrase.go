// Package phrase puts values into the words that operators read, the same in
// every page and in the plain stream. Pure functions only.
package phrase

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Ms is a duration with as many digits as an operator can use.
func Ms(ms float64) string {
	switch {
	case ms <= 0 || math.IsNaN(ms) || math.IsInf(ms, 0):
		return "—"
	case ms >= 60_000:
		return fmt.Sprintf("%.1f min", ms/60_000)
	case ms >= 10_000:
		return fmt.Sprintf("%.1f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f ms", ms)
	}
}

// Percent is a signed relative change, 0.5 for half more.
func Percent(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return "—"
	}
	p := math.Round(x * 100)
	if math.Abs(p) >= 1000 {
		return fmt.Sprintf("%+.0fx", 1+x)
	}
	if p == 0 {
		return "0%"
	}
	return fmt.Sprintf("%+.0f%%", p)
}

// Change is the relative change from before to after.
func Change(before, after float64) string {
	if before <= 0 {
		return "—"
	}
	return Percent(after/before - 1)
}

// Count writes n with thousands separated by commas.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	start := 0
	if n < 0 {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Iteration writes an iteration, or a dash where it has not come.
func Iteration(i int64) string {
	if i < 0 {
		return "—"
	}
	return Count(i)
}

// causeLetters are the causes in one character.
var causeLetters = map[falcon.Cause]rune{
	falcon.CauseGPU:         'C',
	falcon.CauseCPU:         'H',
	falcon.CauseNetwork:     'L',
	falcon.CauseFacility:    'F',
	falcon.CauseNotHardware: 'N',
}

// reasons are what of the job's own work makes it slow, in words.
var reasons = map[falcon.Reason]string{
	falcon.ReasonLengths:      "sequence lengths",
	falcon.ReasonMicroBatches: "micro-batches",
	falcon.ReasonEvaluation:   "evaluation",
	falcon.ReasonCheckpoint:   "checkpoint",
	falcon.ReasonWarmUp:       "warm-up",
	falcon.ReasonData:         "data stall",
	falcon.ReasonGarbage:      "garbage collection",
}

// Reason is a reason in words.
func Reason(r string) string {
	if known, ok := reasons[falcon.Reason(r)]; ok {
		return known
	}
	return r
}

// Cause is a cause in words.
func Cause(c string) string {
	return falcon.Cause(c).Text()
}

// CauseLetter is a cause in one character: C compute, L link, H host, F
// facility, N not hardware, ? unknown.
func CauseLetter(c string) rune {
	if letter, ok := causeLetters[falcon.Cause(c)]; ok {
		return letter
	}
	return '?'
}

// Where names the devices and links of a verdict, and the ranks on them.
func Where(v *falconv1.Verdict) string {
	parts := Few(v.GetDevices(), 3)
	if l := Few(v.GetLinks(), 3); l != "" {
		parts = joinNonEmpty(parts, "link "+l, ", ")
	}
	if r := v.GetRanks(); len(r) > 0 {
		parts = joinNonEmpty(parts, "("+Ranks(r, 4)+")", " ")
	}
	return parts
}

func joinNonEmpty(a, b, sep string) string {
	if a == "" {
		return b
	}
	return a + sep + b
}

// Few names items, of more than most the first and how many there are besides.
func Few(items []string, most int) string {
	if len(items) <= most {
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:most], ", "), len(items)-most)
}

// Sign is + where evidence speaks for the cause, - against it.
func Sign(e *falconv1.Evidence) string {
	if e.GetAgainst() {
		return "-"
	}
	return "+"
}

// Verdict is cause and place: "GPU degradation on n1.g0 (rank 2)".
func Verdict(v *falconv1.Verdict) string {
	if v == nil || v.Cause == "" {
		return "looking for the culprit"
	}
	s := causeOf(v, v.Cause)
	for _, c := range v.Also {
		s += " and " + causeOf(v, c)
	}
	if w := Where(v); w != "" {
		s += " on " + w
	}
	return s
}

// Confidence is how sure a verdict is, behind a comma; "" where it has named nothing.
func Confidence(v *falconv1.Verdict) string {
	if v.GetConfidence() <= 0 {
		return ""
	}
	return fmt.Sprintf(", confidence %.0f%%", 100*v.Confidence)
}

// causeOf is one of a verdict's causes, with the reason where it is the job's own work.
func causeOf(v *falconv1.Verdict, c string) string {
	if v.Reason != "" && falcon.Cause(c) == falcon.CauseNotHardware {
		return Cause(c) + ": " + Reason(v.Reason)
	}
	return Cause(c)
}

// Plan is a change of micro-batches in at most w columns: the whole vectors
// where they fit, else the replica that changes most and the range of the rest.
func Plan(previous, next []int32, w int) string {
	if len(next) == 0 {
		return ""
	}
	if s := joinCounts(previous) + " → " + joinCounts(next); len(s)-2 <= w && len(previous) == len(next) {
		return s
	}
	if len(previous) != len(next) {
		return fmt.Sprintf("%d replicas", len(next))
	}
	most := 0
	lo := int32(math.MaxInt32)
	hi := int32(0)
	for i := range next {
		if absolute(next[i]-previous[i]) > absolute(next[most]-previous[most]) {
			most = i
		}
	}
	for i := range next {
		if i != most {
			lo = min(lo, next[i])
			hi = max(hi, next[i])
		}
	}
	s := fmt.Sprintf("replica %d: %d → %d", most, previous[most], next[most])
	if len(next) > 1 && len(s)+26 <= w {
		s += fmt.Sprintf("; %d others: %s each", len(next)-1, countRange(lo, hi))
	}
	return s
}

// countRange is a range of counts; "8 to 9" would read as a change from 8.
func countRange(lo, hi int32) string {
	switch hi - lo {
	case 0:
		return fmt.Sprint(lo)
	case 1:
		return fmt.Sprintf("%d or %d", lo, hi)
	}
	return fmt.Sprintf("between %d and %d", lo, hi)
}

func absolute(x int32) int32 { return max(x, -x) }

func joinCounts(m []int32) string {
	var b []byte
	for i, x := range m {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(x), 10)
	}
	return string(b)
}

// rungs are what they do.
var rungs = map[falcon.Rung]string{
	falcon.RungS1: "ignore",
	falcon.RungS2: "shift micro-batches",
	falcon.RungS3: "change topology",
	falcon.RungS4: "checkpoint, restart",
}

// Rung is what a rung does.
func Rung(r string) string { return rungs[falcon.Rung(r)] }

// Does is what a rung does when it is taken in a variant.
func Does(r, variant string) string {
	if r == string(falcon.RungS4) && variant == string(falcon.VariantFence) {
		return "fence a node, a spare in its place"
	}
	return Rung(r)
}

// RungName is a rung with its variant: "S4 replace".
func RungName(g *falconv1.RungView) string {
	if g.GetVariant() != "" {
		return g.Rung + " " + g.Variant
	}
	return g.GetRung()
}

// ActsAlone reports whether policy takes a rung without a person. S1 alone, ignoring, is none.
func ActsAlone(p *falconv1.Policy) bool {
	return p.GetMode() == string(falcon.ModeAuto) && p.Cap != string(falcon.RungS1)
}

// Mode is the policy in the word that the header shows.
func Mode(p *falconv1.Policy) string {
	switch {
	case p == nil:
		return "—"
	case p.Frozen:
		return "FROZEN"
	case ActsAlone(p):
		return "AUTO ≤ " + p.Cap
	case p.Mode == string(falcon.ModeAuto):
		return "APPROVE"
	case p.Mode == "":
		return "—"
	}
	return strings.ToUpper(p.Mode)
}

// RecoveryMode is who lets recoveries begin, where the mode would have one think otherwise; else "".
func RecoveryMode(p *falconv1.Policy) string {
	r := p.GetRecovery()
	switch asks := r.GetApproval() == falcon.ApprovalPerson; {
	case r == nil || p.GetFrozen() || p.GetMode() == string(falcon.ModeObserve):
		return ""
	case !asks && !ActsAlone(p):
		return "REC AUTO"
	case asks && ActsAlone(p):
		return "REC PERSON"
	}
	return ""
}

// Because is ": REASON" where the action's state has one: why it was undone, or
// else what the decision gave or the failure was.
func Because(a *falconv1.Action) string {
	reason := a.Reason
	switch falcon.ActionState(a.State) {
	case falcon.ActionReverting, falcon.ActionReverted, falcon.ActionRetained:
		reason = a.RevertReason
	}
	return Prefixed(": ", reason)
}

// Prefixed is s behind a prefix, and "" where s is.
func Prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// Capital begins a sentence: our own words, so its first letter is ASCII.
func Capital(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
