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
	steps         []step                     // the first one is in progress
	confirmations int                        // rounds in which slow passes were run again
	growths       int                        // rounds in which more messages were sent
	messages      map[falcon.LinkClass]int32 // of one repeat; 0 = 1
	references    references
	awaited       map[falcon.Rank]bool
	ids           map[passes.Pair]uniqueIDs

	gemm       []falcon.GEMMResult
	links      []falcon.LinkResult
	passesDone int
}

// step is one round of tests: all of it at once, the next after the last
// result.
type step struct {
	queued

	kind    falconv1.TestKind
	pass    int // LINK: index into schedule
	minters minters
}

// queued is why a step repeats what was measured.
type queued struct {
	again bool             // something slow was found in it: the lesser time counts
	grown bool             // it was too short to judge
	only  falcon.LinkClass // of the pairs of a pass; empty = all
}

func (q queued) takes(class falcon.LinkClass) bool {
	return q.only == "" || q.only == class
}

// minters is which rank mints the unique ids of which pair. Either end can:
// an id only names where the two meet.
type minters map[falcon.Rank]passes.Pair

// confirmMost is how often the passes with slow directions are run again: what
// is slow by the host's scheduling alone is not slow each time.
const confirmMost = 2

// clearlySlow is the ratio that one more run is enough to confirm: the job does not
// train while a slow link is timed.
// It is a multiple of the least one that is slow.
const clearlySlow = 1.6

// uniqueIDs are the unique ids of one exchange.
type uniqueIDs struct{ forward, backward []byte }

func newTestRun(cfg Config, b Begin, r roster) testRun {
	t := testRun{
		roster:       r,
		own:          b.Own,
		gemmSide:     int32(firstSet(b.Ask.GEMMSide, cfg.GEMMSide, GEMMSideDefault)),
		messageBytes: firstSet(b.Ask.MessageBytes, cfg.MessageBytes, MessageBytesDefault),
		repeats:      int32(min(firstSet(cfg.Repeats, RepeatsDefault), RepeatsMost)),
	}
	ask, references := withReferences(b.Ask, r)
	t.references = references
	t.messages = map[falcon.LinkClass]int32{}
	t.schedule = passes.Split(passes.Plan(ask), func(rank falcon.Rank) string {
		return string(r.nicOf(rank))
	})
	t.gemmRanks = slices.Compact(slices.Sorted(slices.Values(ask.GEMM)))
	return t
}

// recoveredTestRun runs nothing: it holds the results of a validation that an
// engine before this one left behind.
func recoveredTestRun(v falcon.Validation) testRun {
	return testRun{
		gemm:       v.GEMM,
		links:      v.Links,
		passesDone: v.PassesDone,
	}
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

// description is what will be tested, and beside what.
func (t *testRun) description() string {
	links := -len(t.references.pairs)
	for _, p := range t.schedule {
		links += len(p.Pairs)
	}
	devices := len(t.gemmRanks) - len(t.references.ranks)
	total, extra := t.passCounts()
	s := joinCounts(
		pluralize(devices, "device"),
		pluralize(links, "link")+" in "+pluralize(total, "pass"),
		devices,
		links,
	)
	if extra > 0 {
		s += fmt.Sprintf(" (%d of them because pairs would share a port)", extra)
	}
	if n, m := len(t.references.ranks), len(t.references.pairs); n+m > 0 {
		s += ", and to compare with " + joinCounts(pluralize(n, "device"), pluralize(m, "link"), n, m)
	}
	return s
}

// begin queues all tests once.
func (t *testRun) begin() {
	t.steps = nil
	t.queueGEMM(queued{})
	all := make([]int, len(t.schedule))
	for i := range all {
		all[i] = i
	}
	t.ids = map[passes.Pair]uniqueIDs{}
	t.queuePasses(all, queued{})
}

func (t *testRun) queueGEMM(why queued) {
	if len(t.gemmRanks) > 0 {
		t.steps = append(t.steps, step{queued: why, kind: falconv1.TestKind_TEST_KIND_GEMM})
	}
}

// queuePasses queues passes. The ids of all of them are minted first, as many at
// once as there are ranks to do it: the job does not train while an order travels.
func (t *testRun) queuePasses(list []int, why queued) {
	for _, round := range mintRounds(t.schedule, list, func(p passes.Pair) bool {
		return why.takes(t.roster.classOf(p))
	}) {
		t.steps = append(t.steps, step{
			queued:  why,
			kind:    falconv1.TestKind_TEST_KIND_ID,
			minters: round,
		})
	}
	for _, i := range list {
		t.steps = append(t.steps, step{
			queued: why,
			kind:   falconv1.TestKind_TEST_KIND_LINK,
			pass:   i,
		})
	}
}

// mintRounds gives every pair of the passes listed one of its ends as minter,
// in the first round in which one is free. A ring, whose ranks are in two pairs
// each, takes one round; any schedule takes no more than it has passes, since
// a rank is in a pass once.
func mintRounds(schedule []passes.Pass, list []int, wanted func(passes.Pair) bool) []minters {
	var out []minters
	for _, i := range list {
		for _, p := range schedule[i].Pairs {
			if wanted(p) {
				out = assignMinter(out, p)
			}
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
func (t *testRun) confirming() bool {
	return t.steps[0].again || t.steps[0].grown
}

// more reports whether a step is left, after what was too short to judge and then
// what was slow was queued again where that is wanted.
func (t *testRun) more() bool {
	return t.running() || t.queueGrowth() || t.queueConfirmations()
}

// queueConfirmations queues what was slow, or lay within the noise, once more; what was
// clearly slow only once. It reports whether there is anything to confirm.
func (t *testRun) queueConfirmations() bool {
	if t.confirmations >= confirmMost {
		return false
	}
	first := t.confirmations == 0
	t.confirmations++
	doubtful := func(slow bool, unjudged string, ratio, limit float64) bool {
		noisy := unjudged != "" && unjudged != falcon.NothingToCompare && unjudged != falcon.TooShort
		return noisy || slow && (first || ratio < clearlySlow*limit)
	}
	links := slices.Clone(t.links)
	gemm := slices.Clone(t.gemm)
	passes.Judge(links, t.own)
	passes.JudgeGEMM(gemm)
	if slices.ContainsFunc(gemm, func(g falcon.GEMMResult) bool {
		return doubtful(g.Slow, g.Unjudged, g.Ratio, g.Limit)
	}) {
		t.queueGEMM(queued{again: true})
	}
	var list []int
	for i := range t.schedule {
		if slices.ContainsFunc(links, func(l falcon.LinkResult) bool {
			return l.Pass == i && doubtful(l.Slow, l.Unjudged, l.Ratio, l.Limit)
		}) {
			list = append(list, i)
		}
	}
	t.queuePasses(list, queued{again: true})
	return t.running()
}

// startStep lists the tests of the step in progress by rank; their results are awaited.
func (t *testRun) startStep(life time.Duration) []*falconv1.RankTest {
	tests := t.stepTests(t.steps[0])
	slices.SortFunc(tests, func(a, b *falconv1.RankTest) int {
		return int(a.GetRank() - b.GetRank())
	})
	t.awaited = map[falcon.Rank]bool{}
	for _, x := range tests {
		x.Kind = t.steps[0].kind
		x.LifeMs = life.Milliseconds()
		x.Repeats = t.repeats
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
			class := t.roster.classOf(p)
			if id, known := t.ids[p]; known && s.takes(class) {
				for side, r := range p {
					out = append(out, &falconv1.RankTest{
						Rank:       int32(r),
						Bytes:      t.messageBytes,
						N:          t.messages[class],
						Side:       int32(side),
						ForwardId:  id.forward,
						BackwardId: id.backward,
					})
				}
			}
		}
	}
	return out
}

func (t *testRun) endStep() {
	s := t.steps[0]
	t.steps = t.steps[1:]
	if s.kind == falconv1.TestKind_TEST_KIND_LINK && !s.again && !s.grown {
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
		g := falcon.GEMMResult{
			Rank:      rank,
			Device:    t.roster.members[rank].Device,
			Reference: t.references.ranks[rank],
			Err:       trouble,
		}
		if trouble == "" {
			g.Ms = got.GetMedianMs()
			g.BestMs = bestMs(got)
			g.Runs = 1
			g.Bits = elementBits(x, got)
		}
		t.addDevice(g)
	case falconv1.TestKind_TEST_KIND_ID:
		pair := t.steps[0].minters[rank]
		delete(t.ids, pair) // those of an earlier exchange
		if trouble == "" {
			t.ids[pair] = uniqueIDs{got.GetForwardId(), got.GetBackwardId()}
			return
		}
		pass := t.passOf(pair)
		t.addDirection(t.linkResult(pass, pair[0], pair[1], nil, trouble))
		t.addDirection(t.linkResult(pass, pair[1], pair[0], nil, trouble))
	case falconv1.TestKind_TEST_KIND_LINK:
		pass := t.steps[0].pass
		t.addDirection(t.linkResult(pass, t.partnerOf(pass, rank), rank, got, trouble))
	}
}

// elementBits is the width of the numbers that a device multiplied, 0 where its hook does not tell.
func elementBits(x *falconv1.RankTest, got *falconv1.TestResult) int {
	const widest = 64
	elements := int64(x.GetN()) * int64(x.GetN())
	if elements <= 0 || got.GetBytes() < 0 || got.GetBytes()/elements > widest/8 {
		return 0
	}
	return int(8 * got.GetBytes() / elements)
}

// bestMs is the least repeat; an agent that names none repeats the median.
func bestMs(got *falconv1.TestResult) float64 {
	return cmp.Or(got.GetBestMs(), got.GetMedianMs())
}

// addDevice takes a device's first time, and after that a lesser one.
func (t *testRun) addDevice(g falcon.GEMMResult) {
	i := slices.IndexFunc(t.gemm, func(x falcon.GEMMResult) bool {
		return x.Rank == g.Rank
	})
	switch {
	case i < 0:
		t.gemm = append(t.gemm, g)
	case g.Err == "" && t.gemm[i].Err == "":
		old := &t.gemm[i]
		old.Ms = min(old.Ms, g.Ms)
		old.BestMs = min(old.BestMs, g.BestMs)
		old.Runs++
	}
}

// addDirection takes a direction's first time, after that a lesser one, and one
// of more bytes in place of either.
func (t *testRun) addDirection(l falcon.LinkResult) {
	same := func(x falcon.LinkResult) bool {
		return x.Pass == l.Pass && x.From == l.From && x.To == l.To
	}
	i := slices.IndexFunc(t.links, same)
	switch {
	case i < 0:
		t.links = append(t.links, l)
	case l.Err != "" || t.links[i].Err != "" || l.Bytes < t.links[i].Bytes:
	case l.Bytes > t.links[i].Bytes:
		t.links[i] = l
	default:
		old := &t.links[i]
		old.Ms = min(old.Ms, l.Ms)
		old.BestMs = min(old.BestMs, l.BestMs)
		old.Runs++
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
	return slices.IndexFunc(t.schedule, func(x passes.Pass) bool {
		return slices.Contains(x.Pairs, p)
	})
}

// linkResult is one direction of an exchange, timed by its receiver. A hook that
// sends one message only whatever is asked of it says so by the bytes.
func (t *testRun) linkResult(
	pass int,
	from, to falcon.Rank,
	got *falconv1.TestResult,
	trouble string,
) falcon.LinkResult {
	a, b, pair := t.roster.members[from], t.roster.members[to], passes.NewPair(from, to)
	class := t.roster.classOf(pair)
	out := falcon.LinkResult{
		From:       from,
		To:         to,
		FromDevice: a.Device,
		ToDevice:   b.Device,
		Class:      class,
		Pass:       pass,
		Reference:  t.references.pairs[pair],
		Bytes:      cmp.Or(got.GetBytes(), t.messageBytes*int64(t.messagesOf(class))),
		Err:        trouble,
	}
	if trouble == "" {
		out.Ms = got.GetMedianMs()
		out.BestMs = bestMs(got)
		out.Runs = 1
	}
	if x, y := a.Device.Node(), b.Device.Node(); x != y {
		out.Link = falcon.NewLink(x, y).String()
	}
	return out
}

// judge orders the results and marks the slow ones.
func (t *testRun) judge() {
	slices.SortStableFunc(t.gemm, func(a, b falcon.GEMMResult) int {
		return int(a.Rank - b.Rank)
	})
	slices.SortStableFunc(t.links, compareByPass)
	passes.Judge(t.links, t.own)
	passes.JudgeGEMM(t.gemm)
}

func compareByPass(a, b falcon.LinkResult) int {
	return cmp.Or(
		a.Pass-b.Pass,
		int(min(a.From, a.To)-min(b.From, b.To)),
		int(a.From-b.From),
	)
}

// firstAwaited names the first rank whose result has not come.
func (t *testRun) firstAwaited() string {
	if len(t.awaited) == 0 {
		return "no rank"
	}
	rank := slices.Min(slices.Collect(maps.Keys(t.awaited)))
	return fmt.Sprintf("rank %d on node %s", rank, t.roster.nodeOf(rank))
}

// nothingMeasured reports whether all that was asked for failed.
func (t *testRun) nothingMeasured() bool {
	gemm := slices.ContainsFunc(t.gemm, func(g falcon.GEMMResult) bool {
		return g.Err == "" && !g.Reference
	})
	link := slices.ContainsFunc(t.links, func(l falcon.LinkResult) bool {
		return l.Err == "" && !l.Reference
	})
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
