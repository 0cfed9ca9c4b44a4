package phrase

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Seconds is a time that is left, counted down.
func Seconds(d time.Duration) string {
	switch s := int((d + time.Second - 1) / time.Second); {
	case s >= 120 && s%60 == 0:
		return fmt.Sprintf("%d min", s/60)
	case s >= 120:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	default:
		return fmt.Sprintf("%d s", s)
	}
}

// Span is a time in milliseconds as a person waits for it: "40 s", "9 min", "5 h", "3 days", "" for
// none.
func Span(ms float64) string {
	switch {
	case !(ms > 0):
		return ""
	case ms < 120_000:
		return fmt.Sprintf("%.0f s", math.Ceil(ms/1000))
	case ms < 2*3_600_000:
		return fmt.Sprintf("%.0f min", ms/60_000)
	case ms < 48*3_600_000:
		return fmt.Sprintf("%.0f h", ms/3_600_000)
	case ms < 365*86_400_000:
		return fmt.Sprintf("%.0f days", ms/86_400_000)
	}
	return "over a year"
}

// Ranks names ranks, runs of them as "4-7", at most most parts: "rank 2",
// "ranks 0-3, 8 and 12 more".
func Ranks[R ~int | ~int32](ranks []R, most int) string {
	if !slices.IsSorted(ranks) {
		ranks = slices.Sorted(slices.Values(ranks))
	}
	switch len(ranks) {
	case 0:
		return "no rank"
	case 1:
		return "rank " + strconv.Itoa(int(ranks[0]))
	}
	var parts []string
	named := 0
	for named < len(ranks) && len(parts) < most {
		end := named + 1
		for end < len(ranks) && ranks[end] == ranks[end-1]+1 {
			end++
		}
		part := strconv.Itoa(int(ranks[named]))
		if end > named+1 {
			part += "-" + strconv.Itoa(int(ranks[end-1]))
		}
		parts = append(parts, part)
		named = end
	}
	text := "ranks " + strings.Join(parts, ", ")
	if rest := len(ranks) - named; rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}

// Fault is a fault in a line, with what the process says of its end: "process ended on n1.g0
// (rank 2): CUDA error: out of memory".
func Fault(f *falconv1.Fault) string {
	return FaultName(f) + Prefixed(": ", f.GetWords())
}

// FaultName is a fault in a few words: "process ended on n1.g0 (rank 2)".
func FaultName(f *falconv1.Fault) string {
	if f.GetKind() == string(falcon.FaultNode) {
		return node(f)
	}
	where := " on "
	if f.GetKind() == string(falcon.FaultHang) {
		where = ", seen first on " // the ranks that wait are no culprits
	}
	s := FaultKind(f.GetKind()) + Prefixed(where, cmp.Or(f.GetDevice(), f.GetNode()))
	if f.GetAskedBy() != "" {
		s = "process on " + cmp.Or(f.GetDevice(), f.GetNode()) + " replaced by order of " + f.AskedBy
	}
	if len(f.GetRanks()) > 0 {
		s += " (" + Ranks(f.Ranks, 4) + ")"
	}
	return s
}

// node is a node that is given up: one that somebody, or an action, had fenced is not lost.
func node(f *falconv1.Fault) string {
	switch {
	case f.GetAction() != "":
		return "node " + f.Node + " fenced for " + f.Action
	case f.GetAskedBy() != "":
		return "node " + f.Node + " fenced by " + f.AskedBy
	}
	return "node " + f.Node + " lost"
}

// Returned is what became of a node that was given up for its silence, "" where it did not come back.
func Returned(f *falconv1.Fault) string {
	if f.GetReturnedUnixNs() == 0 {
		return ""
	}
	return "taken back, as it was heard again after " + Ms(float64(f.ReturnedUnixNs-f.GetFirstUnixNs())/1e6)
}

// WaitsFor is for whom parked ranks wait, what follows, and what that costs.
func WaitsFor(w *falconv1.RecoveryWait, left time.Duration) string {
	var whom []string
	if len(w.GetNodes()) > 0 {
		whom = append(whom, strings.Join(w.Nodes, ", ")+" to come back")
	}
	if w.GetSpare() {
		whom = append(whom, "a spare")
	}
	if len(whom) == 0 {
		whom = []string{"nobody"}
	}
	text := "waits " +
		Seconds(left) +
		" more for " +
		strings.Join(whom, " or ") +
		", then " +
		afterWait(w.GetThen())
	if w.GetLaunchMs() > 0 {
		text += " (that costs " +
			Span(w.GetRedoMs()) +
			" of training again and " +
			Span(w.LaunchMs) +
			" to start)"
	}
	return text
}

// afterWait is what follows a wait in words.
func afterWait(then string) string {
	switch falcon.AfterWait(then) {
	case falcon.ThenFail:
		return "the recovery fails"
	case falcon.ThenFewer:
		return "the job goes on from its checkpoint with fewer replicas"
	case falcon.ThenCheckpoint:
		return "a spare takes its place and all ranks load the checkpoint"
	case falcon.ThenRestart:
		return "the whole job is started again from its checkpoint"
	}
	return then
}

// gravest orders the kinds of faults: what is lost first, what merely waits last.
var gravest = []falcon.FaultKind{falcon.FaultNode, falcon.FaultDevice, falcon.FaultExit, falcon.FaultFrozen}

func gravity(f *falconv1.Fault) int {
	if i := slices.Index(gravest, falcon.FaultKind(f.GetKind())); i >= 0 {
		return i
	}
	return len(gravest)
}

// Faults names the gravest of several, and how many more there are. That others wait is a symptom
// of what is lost, and is not counted beside it.
func Faults(list []*falconv1.Fault) string {
	list = slices.SortedStableFunc(slices.Values(list), func(a, b *falconv1.Fault) int {
		return gravity(a) - gravity(b)
	})
	if len(list) > 0 && list[0].GetKind() != string(falcon.FaultHang) {
		list = slices.DeleteFunc(list, func(f *falconv1.Fault) bool {
			return f.GetKind() == string(falcon.FaultHang)
		})
	}
	switch len(list) {
	case 0:
		return "no fault"
	case 1:
		return Fault(list[0])
	}
	return fmt.Sprintf("%s and %d more", FaultName(list[0]), len(list)-1) + Prefixed(": ", list[0].GetWords())
}

// erredWords are of ranks that failed before the first iteration; others may live.
const erredWords = "FAILED BY ITSELF: an error of the program before the first iteration"

// togetherWords are what the ends of all ranks within moments of each other mean.
var togetherWords = map[falcon.EndsTogether]string{
	falcon.EndsStopped: "STOPPED BY SOMEBODY: %s ended by SIGTERM or SIGINT, agents alive",
	falcon.EndsAtOnce:  "STOPPED, OR FAILED ALIKE: %s ended at once, agents alive",
	falcon.EndsUnbegun: "FAILED BY ITSELF: %s ended before the first iteration, agents alive",
	falcon.EndsAlike:   "FAILED BY ITSELF: %s ended with one error, agents alive",
}

// Together is what the ends of all ranks mean about which a recovery asks; "" where they did not end
// together.
func Together(r *falconv1.Recovery) string {
	why := falcon.EndsTogether(r.GetTogether())
	if why == falcon.EndsErred {
		return erredWords
	}
	words, ok := togetherWords[why]
	if !ok {
		return ""
	}
	n := 0
	for _, f := range r.GetFaults() {
		n += len(f.GetRanks())
	}
	all := "all ranks"
	if n > 1 {
		all = fmt.Sprintf("all %d ranks", n)
	}
	return fmt.Sprintf(words, all)
}

// faults are the kinds of faults in words.
var faults = map[falcon.FaultKind]string{
	falcon.FaultExit:   "process ended",
	falcon.FaultFrozen: "process frozen",
	falcon.FaultHang:   "training stopped",
	falcon.FaultDevice: "device fault",
}

// FaultKind is what a fault is in words.
func FaultKind(k string) string {
	if text, ok := faults[falcon.FaultKind(k)]; ok {
		return text
	}
	return k
}

// Progress is in a few words what the present state of a recovery waits for.
func Progress(r *falconv1.Recovery) string {
	count := map[string]int{}
	for _, x := range r.GetRanks() {
		count[x.GetStage()]++
	}
	of := func(n int, what string) string {
		return fmt.Sprintf("%d of %d ranks %s", n, len(r.Ranks), what)
	}
	switch falcon.RecoveryState(r.GetState()) {
	case falcon.RecoverySuspend:
		if r.GetWhole() {
			return "agents are to come back before all is started again"
		}
		return of(count["parked"], "parked")
	case falcon.RecoveryReplace:
		return fmt.Sprintf("%s to join, %d joined",
			Ranks(slices.Sorted(maps.Keys(r.Replaced)), 3), count["joining"])
	case falcon.RecoveryTable:
		return "the new rank table goes to the nodes"
	case falcon.RecoveryCollect:
		return "each process reports which steps it holds"
	case falcon.RecoveryRejoin:
		return of(count["training"], "train again")
	}
	return ""
}

// Phases are those of a recovery, in the order in which they come.
var Phases = [...]string{
	falcon.PhaseDetect, falcon.PhaseDecide, falcon.PhaseSuspend, falcon.PhaseFence, falcon.PhaseReplace,
	falcon.PhaseTable, falcon.PhaseCollect, falcon.PhaseGroups, falcon.PhaseRestore, falcon.PhaseResume,
}

// Replacing heads the ranks that a recovery replaces: it lists them as soon as it is
// proposed, and one that was denied has replaced none.
func Replacing(state falcon.RecoveryState, phases map[string]float64) string {
	_, launched := phases[falcon.PhaseReplace]
	switch state {
	case falcon.RecoveryProposed, falcon.RecoverySuspend:
		return "to be replaced"
	case falcon.RecoveryDenied, falcon.RecoveryCancelled, falcon.RecoveryFailed:
		if !launched {
			return "not replaced"
		}
	}
	return "replaced"
}

// Replaced lists the ranks that a recovery replaces, with their new devices.
func Replaced(r *falconv1.Recovery) string {
	var out []string
	for _, rank := range slices.Sorted(maps.Keys(r.GetReplaced())) {
		out = append(out, fmt.Sprintf("rank %d on %s", rank, r.Replaced[rank]))
	}
	return strings.Join(out, ", ")
}
