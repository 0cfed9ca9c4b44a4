package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/peer"
	"github.com/failslow/falcon/detect/trace"
	"github.com/failslow/falcon/detect/trace/hang"
)

// Stuck is a collective that some members never reached, or that none finished.
type Stuck struct {
	Group   string        `json:"group"`
	Members []falcon.Rank `json:"members"`
	Seq     int64         `json:"seq"`
	Op      string        `json:"op"`
	Late    []falcon.Rank `json:"late"` // members with older calls only; empty where all are in it
	Waiting []falcon.Rank `json:"waiting"`
}

// Mismatch is a collective that members of one group call differently.
type Mismatch struct {
	Group string            `json:"group"`
	Seq   int64             `json:"seq"`
	Calls map[string]string `json:"calls"` // by rank
	Odd   []falcon.Rank     `json:"odd"`   // the ranks with the rarer call; empty where there is no majority
}

// Weights of evidence from dumps.
const (
	weightLate     = 0.80 // others are in a collective that a rank never called
	weightMismatch = 0.85 // members call different collectives: a fault of the program
	weightLeast    = 0.50 // a rank waits least in all its groups, and others wait for it
	weightSeen     = 0.50 // factor: durations are from the polling watchdog
)

// watchdogMs is the polling interval of PyTorch's watchdog, which limits the
// resolution of its times.
const watchdogMs = 100

// group is one process group over all dumps.
type group struct {
	name    string
	members []falcon.Rank
	calls   map[falcon.Rank]map[int64]trace.Entry // by rank and number
	oldest  map[falcon.Rank]int64
	newest  map[falcon.Rank]int64
	whole   map[falcon.Rank]bool // ranks whose dumps are complete: other calls were never made
}

// flights is the content of all dumps.
type flights struct {
	groups  []*group
	missing []falcon.Rank
	waits   map[falcon.Rank]*rankWait
	coarse  bool // durations are from the watchdog
	timed   int  // collectives with the durations of all members
}

// rankWait adds up one rank's share over its collectives.
type rankWait struct {
	waitMs, transferMs float64
	awaited, waiting   bool
}

// Dumps judges flight-recorder dumps, one per rank: ranks that are late to a
// collective or call another one, and ranks that others wait for, by durations. Zero
// fields of Rules mean the defaults.
func Dumps(dumps []trace.Dump, rules peer.Rules) TraceReport {
	return DumpsWith(dumps, Extra{}, rules)
}

// DumpsWith judges dumps with other records of a hang.
func DumpsWith(dumps []trace.Dump, extra Extra, rules peer.Rules) TraceReport {
	rules = rulesOfTraces(rules)
	f := gatherCalls(dumps)
	r := TraceReport{Source: "flight_recorder", Missing: f.missing}
	for _, g := range f.groups {
		f.attributeWaits(g, rules)
		if s, ok := g.firstStuck(); ok {
			r.Stuck = append(r.Stuck, s)
		}
		r.Mismatched = append(r.Mismatched, g.mismatches()...)
	}
	for _, rank := range slices.Sorted(maps.Keys(f.waits)) {
		w := f.waits[rank]
		r.Workers = append(r.Workers, WorkerReport{
			Worker:     fmt.Sprintf("rank%d", rank),
			Rank:       rank,
			TransferMs: w.transferMs,
			WaitMs:     w.waitMs,
			Awaited:    w.awaited,
		})
	}
	f.verdict(&r, newStandstill(dumps), extra)
	if len(f.missing) > 0 {
		r.addNote(falcon.EvidenceTiming, true, "%d ranks of these groups have no dump: %v",
			len(f.missing), firstFew(f.missing))
		r.Confidence *= noCounters
	}
	r.addNote(falcon.EvidenceCounter, true, noCountersText)
	r.fillEmptyLists()
	return r
}

// gatherCalls collects the calls of all dumps by process group and number.
func gatherCalls(dumps []trace.Dump) *flights {
	f := &flights{waits: map[falcon.Rank]*rankWait{}}
	byKey := map[string]*group{}
	have := map[falcon.Rank]bool{}
	whole := map[falcon.Rank]bool{}
	for _, d := range dumps {
		rank := falcon.Rank(d.Rank)
		have[rank], whole[rank] = true, lostNothing(d)
		f.waits[rank] = &rankWait{}
		keys := map[string]string{}
		for _, e := range d.Entries {
			if e.PointToPnt {
				continue // numbered by pair, and eager sends finish early
			}
			key, known := keys[e.Group]
			if !known {
				key = e.Group + fmt.Sprint(d.Groups[e.Group].Ranks)
				keys[e.Group] = key
			}
			g := byKey[key]
			if g == nil {
				g = newGroup(e.Group, d.Groups[e.Group])
				g.whole = whole
				byKey[key] = g
			}
			g.takeDump(rank, e)
		}
	}
	missing := map[falcon.Rank]bool{}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		g := byKey[key]
		if len(g.members) == 0 {
			g.members = slices.Sorted(maps.Keys(g.calls))
		}
		for _, m := range g.members {
			if !have[m] {
				missing[m] = true
			}
		}
		f.groups = append(f.groups, g)
	}
	f.missing = slices.Sorted(maps.Keys(missing))
	return f
}

// lostNothing reports whether a dump still has the rank's first call.
func lostNothing(d trace.Dump) bool {
	return len(d.Entries) == 0 ||
		slices.ContainsFunc(d.Entries, func(e trace.Entry) bool { return e.Record == 0 })
}

func newGroup(name string, recorded trace.DumpGroup) *group {
	g := &group{
		name:   name,
		calls:  map[falcon.Rank]map[int64]trace.Entry{},
		oldest: map[falcon.Rank]int64{},
		newest: map[falcon.Rank]int64{},
	}
	if recorded.Desc != "" && recorded.Desc != "undefined" {
		g.name += " (" + recorded.Desc + ")"
	}
	for _, m := range recorded.Ranks {
		g.members = append(g.members, falcon.Rank(m))
	}
	slices.Sort(g.members)
	g.members = slices.Compact(g.members)
	return g
}

func (g *group) takeDump(rank falcon.Rank, e trace.Entry) {
	if g.calls[rank] == nil {
		g.calls[rank] = map[int64]trace.Entry{}
		g.oldest[rank], g.newest[rank] = e.Seq, e.Seq
	}
	// Coalesced calls share a number; the last entry counts.
	g.calls[rank][e.Seq] = e
	g.oldest[rank], g.newest[rank] = min(g.oldest[rank], e.Seq), max(g.newest[rank], e.Seq)
}

// callNumbers are those of calls that any rank recorded, ascending.
func (g *group) callNumbers() []int64 {
	all := map[int64]bool{}
	for _, calls := range g.calls {
		for seq := range calls {
			all[seq] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// firstStuck finds the first open collective; later ones wait for it.
func (g *group) firstStuck() (Stuck, bool) {
	for _, seq := range g.callNumbers() {
		s := Stuck{
			Group:   g.name,
			Members: g.members,
			Seq:     seq,
			Late:    []falcon.Rank{},
			Waiting: []falcon.Rank{},
		}
		over := 0
		for _, m := range g.members {
			e, in := g.calls[m][seq]
			switch {
			case in && e.State == trace.EntryCompleted:
				over++
			case in:
				s.Waiting = append(s.Waiting, m)
				s.Op = e.Name
			case g.calls[m] != nil && g.newest[m] < seq, g.calls[m] == nil && g.whole[m]:
				s.Late = append(s.Late, m)
			}
		}
		if len(s.Waiting) > 0 && over == 0 {
			return s, true
		}
	}
	return Stuck{}, false
}

// mismatches returns the first few collectives that members call differently.
func (g *group) mismatches() []Mismatch {
	const most = 8
	var out []Mismatch
	for _, seq := range g.callNumbers() {
		calls := map[falcon.Rank]string{}
		count := map[string]int{}
		for m, byCall := range g.calls {
			if e, in := byCall[seq]; in {
				calls[m] = describe(e)
				count[calls[m]]++
			}
		}
		if len(count) < 2 {
			continue
		}
		out = append(out, newMismatch(g.name, seq, calls, count))
		if len(out) == most {
			break
		}
	}
	return out
}

func newMismatch(name string, seq int64, calls map[falcon.Rank]string, count map[string]int) Mismatch {
	m := Mismatch{
		Group: name,
		Seq:   seq,
		Calls: map[string]string{},
		Odd:   []falcon.Rank{},
	}
	top := ""
	for _, what := range slices.Sorted(maps.Keys(count)) {
		if top == "" || count[what] > count[top] {
			top = what
		}
	}
	for _, r := range slices.Sorted(maps.Keys(calls)) {
		m.Calls[fmt.Sprint(r)] = calls[r]
		if 2*count[top] > len(calls) && calls[r] != top {
			m.Odd = append(m.Odd, r)
		}
	}
	return m
}

// describe returns the parameters of a call that all members must agree on: the
// operation, and for those with equal shares the size and type.
func describe(e trace.Entry) string {
	switch e.Op {
	case falcon.OpAllReduce, falcon.OpBroadcast, falcon.OpReduce:
		return fmt.Sprintf("%s of %d %s", e.Op, e.Elements, e.Dtype)
	case falcon.OpNone:
		return e.Name
	}
	return e.Op.String()
}

// durationMs is the duration of a call on its rank, from the device, or else from the
// watchdog, which is coarse.
func durationMs(e trace.Entry) (ms float64, coarse bool) {
	if e.DurationMs > 0 {
		return e.DurationMs, false
	}
	if e.State == trace.EntryCompleted && e.StartedNs > 0 && e.EndedNs >= e.StartedNs {
		return float64(e.EndedNs-e.StartedNs)/1e6 + watchdogMs/1e3, true
	}
	return 0, false
}

// attributeWaits splits durations. Members end together, so the shortest duration is
// the transfer and the rest of each member's duration is waiting.
func (f *flights) attributeWaits(g *group, rules peer.Rules) {
	waits := make([]float64, len(g.members))
	transfer := 0.0
	calls, coarse := 0, false
	for _, seq := range g.callNumbers() {
		ms, seen, ok := g.durations(seq)
		if !ok {
			continue
		}
		least := slices.Min(ms)
		transfer += least
		calls++
		coarse = coarse || seen
		for i := range ms {
			waits[i] += ms[i] - least
		}
	}
	if calls == 0 {
		return
	}
	f.timed += calls
	f.coarse = f.coarse || coarse
	longest := slices.Max(waits)
	waited := longest > rules.WaitOver*transfer && (!coarse || longest/float64(calls) > watchdogMs)
	for i, m := range g.members {
		w := f.waits[m]
		w.waitMs += waits[i]
		w.transferMs += transfer
		switch {
		case waited && waits[i] <= longest/2:
			w.awaited = true
		case waited:
			w.waiting = true
		}
	}
}

// durations returns the members' durations in one collective; ok if all are known.
func (g *group) durations(seq int64) (ms []float64, coarse, ok bool) {
	if len(g.members) < 2 {
		return nil, false, false
	}
	for _, m := range g.members {
		e, in := g.calls[m][seq]
		d, seen := durationMs(e)
		if !in || d <= 0 {
			return nil, false, false
		}
		ms = append(ms, d)
		coarse = coarse || seen
	}
	return ms, coarse, true
}

// verdict combines the groups: the cause of a hang, a program that calls different
// collectives, or ranks that others wait for.
func (f *flights) verdict(r *TraceReport, s *standstill, extra Extra) {
	r.Cause = falcon.CauseUnknown
	answer := hang.Solve(s.job)
	extra.weighStacks(r, &answer)
	extra.weighRAS(r, &answer, len(s.job.Members))
	switch {
	case s.reportHang(r, answer):
	case len(r.Mismatched) > 0:
		f.tellMismatch(r)
	default:
		f.nameAwaited(r)
	}
}

func (f *flights) tellMismatch(r *TraceReport) {
	r.Cause = falcon.CauseNotHardware
	r.Severity = 4
	r.Confidence = weightMismatch
	for _, m := range r.Mismatched {
		r.Ranks = append(r.Ranks, m.Odd...)
		text := fmt.Sprintf("Collective %d of group %s is not the same on all members", m.Seq, m.Group)
		for _, rank := range firstFew(m.Odd) {
			text += fmt.Sprintf("; rank %d calls %s", rank, m.Calls[fmt.Sprint(rank)])
		}
		r.addNote(falcon.EvidenceTiming, false, "%s: the program is not the same on all ranks", text)
	}
	slices.Sort(r.Ranks)
	r.Ranks = slices.Compact(r.Ranks)
}

// nameAwaited names the rank that waits least in all its groups. Several ranks are
// noted and not named: with pipelining the other stages of a slow replica are late
// too, and a dump has no computation times.
func (f *flights) nameAwaited(r *TraceReport) {
	var awaited []falcon.Rank
	delay := 0.0
	for _, rank := range slices.Sorted(maps.Keys(f.waits)) {
		w := f.waits[rank]
		if w.awaited && !w.waiting {
			awaited = append(awaited, rank)
		}
		if w.transferMs > 0 {
			delay = max(delay, w.waitMs/w.transferMs)
		}
	}
	switch {
	case f.timed == 0 && len(r.Stuck) == 0:
		r.addNote(
			falcon.EvidenceTiming,
			true,
			"No collective has the durations of all members; set TORCH_NCCL_ENABLE_TIMING=1, and dump every rank",
		)
	case len(awaited) == 0:
		r.addNote(falcon.EvidenceTiming, true,
			"In %d timed collectives no member waits over twice the transfer",
			f.timed)
	default:
		r.Confidence, r.Severity = weightLeast*noCounters, max(1, cause.Severity(min(delay, 1), 0, false, 1))
		if f.coarse {
			r.Confidence *= weightSeen
			r.addNote(falcon.EvidenceTiming, true,
				"Durations are from the watchdog, which polls every %d ms; set TORCH_NCCL_ENABLE_TIMING=1 for device times",
				watchdogMs)
		}
		r.addNote(falcon.EvidenceTiming, false,
			"In %d timed collectives the others wait for %v: longest wait %.2f x the transfer",
			f.timed, firstFew(awaited), delay)
		if len(awaited) > 1 {
			r.Confidence *= noCounters
			r.addNote(falcon.EvidenceTiming, true,
				"%d ranks are waited for, and dumps have no computation time, so none of them is named",
				len(awaited))
			return
		}
		r.Ranks = awaited
	}
}

// firstFew shortens a list of ranks.
func firstFew(ranks []falcon.Rank) []falcon.Rank {
	const most = 16
	out := slices.Clone(ranks[:min(len(ranks), most)])
	slices.SortFunc(out, func(a, b falcon.Rank) int {
		return cmp.Compare(a, b)
	})
	return out
}
