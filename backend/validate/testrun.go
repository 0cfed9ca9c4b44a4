package validate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/passes"
)

// testRun is the tests of one validation: their order, and what they measured.
type testRun struct {
	roster       roster
	own          passes.Own
	gemmSide     int32
	messageBytes int64
	repeats      int32

	schedule      []passes.Pass
	gemmRanks     []falcon.Rank
	steps         []step // the first one is in progress
	confirmations int    // rounds in which slow passes were run again
	awaited       map[falcon.Rank]bool
	ids           map[passes.Pair]uniqueIDs

	gemm       []falcon.GEMMResult
	links      []falcon.LinkResult
	passesDone int
}

// step is one round of tests: all of it at once, the next after the last
// result.
type step struct {
	kind    falconv1.TestKind
	pass    int  // LINK: index into schedule
	again   bool // a slow direction was found in it: the lesser time counts
	minters minters
}

// minters is which rank mints the unique ids of which pair. Either end can:
// an id only names where the two meet.
type minters map[falcon.Rank]passes.Pair

// confirmMost is how often the passes with slow directions are run again: what
// is slow by the host's scheduling alone is not slow each time.
const confirmMost = 2

// clearlySlow is the ratio that one more run is enough to confirm: the job does not
// train while a slow link is timed.
const clearlySlow = 2.0

// uniqueIDs are the unique ids of one exchange.
type uniqueIDs struct{ forward, backward []byte }

func newTestRun(cfg Config, b Begin, r roster) testRun {
	t := testRun{
		roster: r, own: b.Own,
		gemmSide:     int32(firstSet(b.Ask.GEMMSide, cfg.GEMMSide, GEMMSideDefault)),
		messageBytes: firstSet(b.Ask.MessageBytes, cfg.MessageBytes, MessageBytesDefault),
		repeats:      int32(min(firstSet(cfg.Repeats, RepeatsDefault), RepeatsMost)),
	}
	t.schedule = passes.Split(passes.Plan(b.Ask), func(rank falcon.Rank) string { return string(r.nicOf(rank)) })
	t.gemmRanks = slices.Compact(slices.Sorted(slices.Values(b.Ask.GEMM)))
	return t
}

// recoveredTestRun runs nothing: it holds the results of a validation that an
// engine before this one left behind.
func recoveredTestRun(v falcon.Validation) testRun {
	return testRun{gemm: v.GEMM, links: v.Links, passesDone: v.PassesDone}
}

// firstSet is the first positive value, else the last one.
func firstSet[T int | int64](values ...T) T {
	for _, v := range values {
		if v > 0 {
			return v
		}
	}
	return values[len(values)-1]
}

// results are copies of what was measured so far, and how many passes are done.
func (t *testRun) results() ([]falcon.GEMMResult, []falcon.LinkResult, int) {
	return slices.Clone(t.gemm), slices.Clone(t.links), t.passesDone
}

// passCounts are how many passes there are, and how many of them only because
// pairs would share a port.
func (t *testRun) passCounts() (total, extra int) {
	return len(t.schedule), passes.Extra(t.schedule)
}

// description is what will be tested.
func (t *testRun) description() string {
	links := 0
	for _, p := range t.schedule {
		links += len(p.Pairs)
	}
	total, extra := t.passCounts()
	s := joinCounts(pluralize(len(t.gemmRanks), "device"), pluralize(links, "link")+" in "+pluralize(total, "pass"), len(t.gemmRanks), links)
	if extra > 0 {
		s += fmt.Sprintf(" (%d of them because pairs would share a port)", extra)
	}
	return s
}

// begin queues all tests once.
func (t *testRun) begin() {
	t.steps = nil
	if len(t.gemmRanks) > 0 {
		t.steps = append(t.steps, step{kind: falconv1.TestKind_TEST_KIND_GEMM})
	}
	all := make([]int, len(t.schedule))
	for i := range all {
		all[i] = i
	}
	t.ids = map[passes.Pair]uniqueIDs{}
	t.queuePasses(all, false)
}

// queuePasses queues passes. The ids of all of them are minted first, as many at
// once as there are ranks to do it: the job does not train while an order travels.
func (t *testRun) queuePasses(list []int, again bool) {
	for _, round := range mintRounds(t.schedule, list) {
		t.steps = append(t.steps, step{kind: falconv1.TestKind_TEST_KIND_ID, again: again, minters: round})
	}
	for _, i := range list {
		t.steps = append(t.steps, step{kind: falconv1.TestKind_TEST_KIND_LINK, pass: i, again: again})
	}
}

// mintRounds gives every pair of the passes listed one of its ends as minter,
// in the first round in which one is free. A ring, whose ranks are in two pairs
// each, takes one round; any schedule takes no more than it has passes, since
// a rank is in a pass once.
func mintRounds(schedule []passes.Pass, list []int) []minters {
	var out []minters
	for _, i := range list {
		for _, p := range schedule[i].Pairs {
			out = assignMinter(out, p)
		}
	}
	return out
}

func assignMinter(rounds []minters, p passes.Pair) []minters {
	for _, round := range rounds {
		for _, r := range p {
			if _, taken := round[r]; !taken {
				round[r] = p
				return rounds
			}
		}
	}
	return append(rounds, minters{p[0]: p})
}

// running reports whether a step is in progress.
func (t *testRun) running() bool { return len(t.steps) > 0 }

// confirming reports whether the step in progress repeats what was measured.
func (t *testRun) confirming() bool { return t.steps[0].again }

// more reports whether a step is left, after slow passes were queued again where
// that is wanted.
func (t *testRun) more() bool { return t.running() || t.queueConfirmations() }

// queueConfirmations queues the passes in which a direction was slow once more, those with
// clearly slow ones only once; false when there is nothing to confirm.
func (t *testRun) queueConfirmations() bool {
	if t.confirmations >= confirmMost {
		return false
	}
	first := t.confirmations == 0
	t.confirmations++
	links := slices.Clone(t.links)
	passes.Judge(links, t.own)
	var slow []int
	for i := range t.schedule {
		if slices.ContainsFunc(links, func(l falcon.LinkResult) bool { return l.Pass == i && l.Slow && (first || l.Ratio < clearlySlow) }) {
			slow = append(slow, i)
		}
	}
	t.queuePasses(slow, true)
	return len(t.steps) > 0
}

// startStep lists the tests of the step in progress by rank; their results are awaited.
func (t *testRun) startStep(life time.Duration) []*falconv1.RankTest {
	tests := t.stepTests(t.steps[0])
	slices.SortFunc(tests, func(a, b *falconv1.RankTest) int { return int(a.GetRank() - b.GetRank()) })
	t.awaited = map[falcon.Rank]bool{}
	for _, x := range tests {
		x.Kind, x.LifeMs, x.Repeats = t.steps[0].kind, life.Milliseconds(), t.repeats
		t.awaited[falcon.Rank(x.GetRank())] = true
	}
	return tests
}

func (t *testRun) stepTests(s step) []*falconv1.RankTest {
	var out []*falconv1.RankTest
	switch s.kind {
	case falconv1.TestKind_TEST_KIND_GEMM:
		for _, r := range t.gemmRanks {
			out = append(out, &falconv1.RankTest{Rank: int32(r), N: t.gemmSide})
		}
	case falconv1.TestKind_TEST_KIND_ID:
		for r := range s.minters {
			out = append(out, &falconv1.RankTest{Rank: int32(r)})
		}
	case falconv1.TestKind_TEST_KIND_LINK:
		for _, p := range t.schedule[s.pass].Pairs {
			if id, known := t.ids[p]; known {
				for side, r := range p {
					out = append(out, &falconv1.RankTest{Rank: int32(r), Bytes: t.messageBytes, Side: int32(side), ForwardId: id.forward, BackwardId: id.backward})
				}
			}
		}
	}
	return out
}

func (t *testRun) endStep() {
	s := t.steps[0]
	t.steps = t.steps[1:]
	if s.kind == falconv1.TestKind_TEST_KIND_LINK && !s.again {
		t.passesDone++
	}
}

// record keeps a node's results. A command that ends without a result for one
// of its ranks has failed there. It reports whether the step's results are
// complete.
func (t *testRun) record(c *falconv1.TestCommand, r *falconv1.CommandResult) bool {
	got := map[int32]*falconv1.TestResult{}
	for _, x := range r.GetTests() {
		got[x.GetRank()] = x
	}
	for _, x := range c.GetTests() {
		rank := falcon.Rank(x.GetRank())
		if !t.awaited[rank] {
			continue
		}
		delete(t.awaited, rank)
		t.recordRank(x, got[x.GetRank()], r.GetDetail())
	}
	return len(t.awaited) == 0
}

func (t *testRun) recordRank(x *falconv1.RankTest, got *falconv1.TestResult, detail string) {
	rank := falcon.Rank(x.GetRank())
	trouble := resultError(x, got, detail)
	switch x.GetKind() {
	case falconv1.TestKind_TEST_KIND_GEMM:
		g := falcon.GEMMResult{Rank: rank, Device: t.roster.members[rank].Device, Err: trouble}
		if trouble == "" {
			g.Ms = got.GetMedianMs()
		}
		t.gemm = append(t.gemm, g)
	case falconv1.TestKind_TEST_KIND_ID:
		pair := t.steps[0].minters[rank]
		delete(t.ids, pair) // those of an earlier exchange
		if trouble == "" {
			t.ids[pair] = uniqueIDs{got.GetForwardId(), got.GetBackwardId()}
			return
		}
		pass := t.passOf(pair)
		t.addDirection(t.linkResult(pass, pair[0], pair[1], 0, trouble))
		t.addDirection(t.linkResult(pass, pair[1], pair[0], 0, trouble))
	case falconv1.TestKind_TEST_KIND_LINK:
		pass := t.steps[0].pass
		t.addDirection(t.linkResult(pass, t.partnerOf(pass, rank), rank, got.GetMedianMs(), trouble))
	}
}

// addDirection takes a direction's first time, and after that a lesser one.
func (t *testRun) addDirection(l falcon.LinkResult) {
	same := func(x falcon.LinkResult) bool { return x.Pass == l.Pass && x.From == l.From && x.To == l.To }
	i := slices.IndexFunc(t.links, same)
	switch {
	case i < 0:
		t.links = append(t.links, l)
	case l.Err == "" && t.links[i].Err == "":
		t.links[i].Ms = min(t.links[i].Ms, l.Ms)
	}
}

// resultError is why a result can't be used; empty when it can.
func resultError(t *falconv1.RankTest, got *falconv1.TestResult, detail string) string {
	switch {
	case got == nil && detail != "":
		return detail
	case got == nil:
		return "no result"
	case got.GetStatus() != falconv1.TestStatus_TEST_STATUS_DONE:
		if got.GetReason() != "" {
			return got.GetReason()
		}
		return "the test did not end"
	case t.GetKind() == falconv1.TestKind_TEST_KIND_ID:
		if len(got.GetForwardId()) != idBytes || len(got.GetBackwardId()) != idBytes {
			return "no unique ids for the test's communicators"
		}
	case got.GetMedianMs() <= 0:
		return "the test took no time"
	}
	return ""
}

// partnerOf is the rank with which one exchanges messages in a pass.
func (t *testRun) partnerOf(pass int, r falcon.Rank) falcon.Rank {
	for _, p := range t.schedule[pass].Pairs {
		switch r {
		case p[0]:
			return p[1]
		case p[1]:
			return p[0]
		}
	}
	panic(fmt.Sprintf("validate: rank %d is in no pair of pass %d", r, pass))
}

// passOf is where a pair is tested; every pair is in one pass.
func (t *testRun) passOf(p passes.Pair) int {
	return slices.IndexFunc(t.schedule, func(x passes.Pass) bool { return slices.Contains(x.Pairs, p) })
}

// linkResult is one direction of an exchange, timed by its receiver.
func (t *testRun) linkResult(pass int, from, to falcon.Rank, ms float64, trouble string) falcon.LinkResult {
	a, b := t.roster.members[from], t.roster.members[to]
	out := falcon.LinkResult{
		From: from, To: to, FromDevice: a.Device, ToDevice: b.Device, Class: passes.Class(a.Device, b.Device, a.NIC, b.NIC),
		Pass: pass, Bytes: t.messageBytes, Ms: ms, Err: trouble,
	}
	if trouble != "" {
		out.Ms = 0
	}
	if x, y := a.Device.Node(), b.Device.Node(); x != y {
		out.Link = falcon.NewLink(x, y).String()
	}
	return out
}

// judge orders the results and marks the slow ones.
func (t *testRun) judge() {
	slices.SortStableFunc(t.gemm, func(a, b falcon.GEMMResult) int { return int(a.Rank - b.Rank) })
	slices.SortStableFunc(t.links, compareByPass)
	passes.Judge(t.links, t.own)
	passes.JudgeGEMM(t.gemm)
}

func compareByPass(a, b falcon.LinkResult) int {
	return cmp.Or(a.Pass-b.Pass, int(min(a.From, a.To)-min(b.From, b.To)), int(a.From-b.From))
}

// firstAwaited names the first rank whose result has not come.
func (t *testRun) firstAwaited() string {
	if len(t.awaited) == 0 {
		return "no rank"
	}
	rank := slices.Min(slices.Collect(maps.Keys(t.awaited)))
	return fmt.Sprintf("rank %d on node %s", rank, t.roster.nodeOf(rank))
}

func (t *testRun) nothingMeasured() bool {
	gemm := slices.ContainsFunc(t.gemm, func(g falcon.GEMMResult) bool { return g.Err == "" })
	link := slices.ContainsFunc(t.links, func(l falcon.LinkResult) bool { return l.Err == "" })
	return !gemm && !link && len(t.gemm)+len(t.links) > 0
}

func (t *testRun) firstError() string {
	for _, g := range t.gemm {
		if g.Err != "" {
			return fmt.Sprintf("%s: %s", g.Device, g.Err)
		}
	}
	for _, l := range t.links {
		if l.Err != "" {
			return fmt.Sprintf("%s→%s: %s", l.FromDevice, l.ToDevice, l.Err)
		}
	}
	return ""
}

// now fills in which tests run.
func (t *testRun) now(out *Now) {
	if !t.running() {
		return
	}
	s := t.steps[0]
	out.Step, out.Again, out.Awaited = stepNames[s.kind], s.again, slices.Sorted(maps.Keys(t.awaited))
	if s.kind == falconv1.TestKind_TEST_KIND_LINK {
		out.Pass, out.Pairs = s.pass, slices.Clone(t.schedule[s.pass].Pairs)
	}
}
