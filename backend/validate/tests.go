package validate

import (
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/detect/passes"
)

// step is one round of tests: all of it at once, the next after the last
// result.
type step struct {
	kind  falconv1.TestKind
	pass  int  // LINK: index into schedule
	again bool // a slow direction was found in it: the lesser time counts
	mints minters
}

// minters says which rank mints the unique ids of which pair. Either end can:
// an id only names where the two meet.
type minters map[falcon.Rank]passes.Pair

// confirmMost is how often the passes with slow directions are run again: what
// is slow by the host's scheduling alone is not slow each time.
const confirmMost = 2

// clearly is the ratio that one more run is enough to confirm: the job stands
// while a slow link is timed.
const clearly = 2.0

// ids are the unique ids of one exchange.
type ids struct{ forward, backward []byte }

// beginTests runs once all ranks are quiet.
func (m *Machine) beginTests(now time.Time) {
	m.v.State, m.quietAt = falcon.ValidationTesting, now
	m.measurePause()
	m.note(0, "%s: the job is held at iteration %d (attempt %d, quiet after %.0f ms)", m.v.ID, m.v.Iteration, m.v.Attempts, m.v.QuietMs)
	m.steps = nil
	if len(m.gemmRanks) > 0 {
		m.steps = append(m.steps, step{kind: falconv1.TestKind_TEST_KIND_GEMM})
	}
	all := make([]int, len(m.schedule))
	for i := range all {
		all[i] = i
	}
	m.ids = map[passes.Pair]ids{}
	m.addPasses(all, false)
	m.nextStep(now)
}

// addPasses queues passes. The ids of all of them are minted first, as many at
// once as there are ranks to do it: the job stands while an order travels.
func (m *Machine) addPasses(list []int, again bool) {
	for _, mints := range mintRounds(m.schedule, list) {
		m.steps = append(m.steps, step{kind: falconv1.TestKind_TEST_KIND_ID, again: again, mints: mints})
	}
	for _, i := range list {
		m.steps = append(m.steps, step{kind: falconv1.TestKind_TEST_KIND_LINK, pass: i, again: again})
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
			out = mint(out, p)
		}
	}
	return out
}

func mint(rounds []minters, p passes.Pair) []minters {
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

// nextStep sends the next round that has something to do, or lets go.
func (m *Machine) nextStep(now time.Time) {
	for len(m.steps) > 0 || m.confirm() {
		s := m.steps[0]
		left := m.lifeEnds.Sub(now) - reserveLife
		if left <= 0 && s.again {
			break // everything was measured once
		}
		if left <= 0 {
			m.fail(now, fmt.Sprintf("the order's %s were over after %d of %d passes: raise validation.life or test less", m.cfg.OrderLife(), m.v.PassesDone, m.v.Passes))
			return
		}
		life := min(left, testLife)
		m.until = now.Add(life + reserveLife/2)
		m.awaited = map[falcon.Rank]bool{}
		for _, t := range m.round(s, life) {
			m.awaited[falcon.Rank(t.GetRank())] = true
		}
		if len(m.awaited) > 0 {
			m.dispatch(m.round(s, life), now.Add(life))
			return
		}
		m.endStep()
	}
	m.release(now)
}

// confirm adds the passes in which a direction was slow once more, those with
// clearly slow ones only once; false when there is nothing to confirm.
func (m *Machine) confirm() bool {
	if m.confirms >= confirmMost {
		return false
	}
	first := m.confirms == 0
	m.confirms++
	links := slices.Clone(m.v.Links)
	passes.Judge(links, m.begin.Own)
	var slow []int
	for i := range m.schedule {
		if slices.ContainsFunc(links, func(l falcon.LinkResult) bool { return l.Pass == i && l.Slow && (first || l.Ratio < clearly) }) {
			slow = append(slow, i)
		}
	}
	m.addPasses(slow, true)
	return len(m.steps) > 0
}

// round lists the tests of one step by rank.
func (m *Machine) round(s step, life time.Duration) []*falconv1.RankTest {
	var out []*falconv1.RankTest
	add := func(r falcon.Rank, t *falconv1.RankTest) {
		t.Rank, t.Kind, t.LifeMs, t.Repeats = int32(r), s.kind, life.Milliseconds(), m.repeats()
		out = append(out, t)
	}
	switch s.kind {
	case falconv1.TestKind_TEST_KIND_GEMM:
		for _, r := range m.gemmRanks {
			add(r, &falconv1.RankTest{N: m.gemmSide()})
		}
	case falconv1.TestKind_TEST_KIND_ID:
		for r := range s.mints {
			add(r, &falconv1.RankTest{})
		}
	case falconv1.TestKind_TEST_KIND_LINK:
		for _, p := range m.schedule[s.pass].Pairs {
			if id, known := m.ids[p]; known {
				for side, r := range p {
					add(r, &falconv1.RankTest{Bytes: m.bytes(), Side: int32(side), ForwardId: id.forward, BackwardId: id.backward})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b *falconv1.RankTest) int { return int(a.GetRank() - b.GetRank()) })
	return out
}

func (m *Machine) repeats() int32 {
	if n := m.cfg.Repeats; n > 0 {
		return int32(min(n, RepeatsMost))
	}
	return RepeatsDefault
}

func (m *Machine) gemmSide() int32 {
	for _, n := range []int{m.v.Ask.GEMMSide, m.cfg.GEMMSide} {
		if n > 0 {
			return int32(n)
		}
	}
	return GEMMSideDefault
}

func (m *Machine) bytes() int64 {
	for _, n := range []int64{m.v.Ask.MessageBytes, m.cfg.MessageBytes} {
		if n > 0 {
			return n
		}
	}
	return MessageBytesDefault
}

// dispatch sends each node its part.
func (m *Machine) dispatch(tests []*falconv1.RankTest, deadline time.Time) {
	for _, n := range m.nodes {
		c := &falconv1.TestCommand{Pause: m.pause}
		for _, t := range tests {
			if m.node(falcon.Rank(t.GetRank())) == n {
				c.Tests = append(c.Tests, t)
			}
		}
		if len(c.GetTests()) > 0 {
			m.send(Command{Node: n, Deadline: deadline, Test: c})
		}
	}
}

func (m *Machine) node(r falcon.Rank) falcon.Node { return m.begin.Members[r].Device.Node() }

// tested takes a node's results. A command that ends without a result for one
// of its ranks has failed there.
func (m *Machine) tested(now time.Time, c Command, r *falconv1.CommandResult) {
	if m.v.State != falcon.ValidationTesting || len(m.steps) == 0 || r.GetStatus() == falconv1.CommandStatus_COMMAND_STATUS_ACCEPTED {
		return
	}
	got := map[int32]*falconv1.TestResult{}
	for _, t := range r.GetTests() {
		got[t.GetRank()] = t
	}
	for _, t := range c.Test.GetTests() {
		rank := falcon.Rank(t.GetRank())
		if !m.awaited[rank] {
			continue
		}
		delete(m.awaited, rank)
		m.record(t, got[t.GetRank()], r.GetDetail())
	}
	if len(m.awaited) == 0 {
		m.endStep()
		m.nextStep(now)
	}
}

func (m *Machine) endStep() {
	s := m.steps[0]
	m.steps = m.steps[1:]
	if s.kind == falconv1.TestKind_TEST_KIND_LINK && !s.again {
		m.v.PassesDone++
	}
}

// record keeps one rank's result.
func (m *Machine) record(t *falconv1.RankTest, got *falconv1.TestResult, detail string) {
	rank := falcon.Rank(t.GetRank())
	trouble := problem(t, got, detail)
	switch t.GetKind() {
	case falconv1.TestKind_TEST_KIND_GEMM:
		g := falcon.GEMMResult{Rank: rank, Device: m.begin.Members[rank].Device, Err: trouble}
		if trouble == "" {
			g.Ms = got.GetMedianMs()
		}
		m.v.GEMM = append(m.v.GEMM, g)
	case falconv1.TestKind_TEST_KIND_ID:
		pair := m.steps[0].mints[rank]
		delete(m.ids, pair) // those of an earlier exchange
		if trouble == "" {
			m.ids[pair] = ids{got.GetForwardId(), got.GetBackwardId()}
			return
		}
		pass := m.passOf(pair)
		m.keep(m.direction(pass, pair[0], pair[1], 0, trouble))
		m.keep(m.direction(pass, pair[1], pair[0], 0, trouble))
	case falconv1.TestKind_TEST_KIND_LINK:
		pass := m.steps[0].pass
		m.keep(m.direction(pass, m.partner(pass, rank), rank, got.GetMedianMs(), trouble))
	}
}

// keep takes a direction's first time, and after that a lesser one.
func (m *Machine) keep(l falcon.LinkResult) {
	same := func(x falcon.LinkResult) bool { return x.Pass == l.Pass && x.From == l.From && x.To == l.To }
	i := slices.IndexFunc(m.v.Links, same)
	switch {
	case i < 0:
		m.v.Links = append(m.v.Links, l)
	case l.Err == "" && m.v.Links[i].Err == "":
		m.v.Links[i].Ms = min(m.v.Links[i].Ms, l.Ms)
	}
}

// problem says why a result can't be used; "" when it can.
func problem(t *falconv1.RankTest, got *falconv1.TestResult, detail string) string {
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

// partner is the rank with which one exchanges messages in a pass.
func (m *Machine) partner(pass int, r falcon.Rank) falcon.Rank {
	for _, p := range m.schedule[pass].Pairs {
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
func (m *Machine) passOf(p passes.Pair) int {
	return slices.IndexFunc(m.schedule, func(x passes.Pass) bool { return slices.Contains(x.Pairs, p) })
}

// direction is one half of an exchange, timed by its receiver.
func (m *Machine) direction(pass int, from, to falcon.Rank, ms float64, trouble string) falcon.LinkResult {
	a, b := m.begin.Members[from], m.begin.Members[to]
	out := falcon.LinkResult{
		From: from, To: to, FromDevice: a.Device, ToDevice: b.Device, Class: passes.Class(a.Device, b.Device, a.NIC, b.NIC),
		Pass: pass, Bytes: m.bytes(), Ms: ms, Err: trouble,
	}
	if trouble != "" {
		out.Ms = 0
	}
	if x, y := a.Device.Node(), b.Device.Node(); x != y {
		out.Link = falcon.NewLink(x, y).String()
	}
	return out
}

// missingResults names the first rank whose result did not come.
func (m *Machine) missingResults() string {
	for r := range m.begin.Members {
		if m.awaited[falcon.Rank(r)] {
			return fmt.Sprintf("rank %d on node %s", r, m.node(falcon.Rank(r)))
		}
	}
	return "nobody"
}

func (m *Machine) nothingMeasured() bool {
	gemm := slices.ContainsFunc(m.v.GEMM, func(g falcon.GEMMResult) bool { return g.Err == "" })
	link := slices.ContainsFunc(m.v.Links, func(l falcon.LinkResult) bool { return l.Err == "" })
	return !gemm && !link && len(m.v.GEMM)+len(m.v.Links) > 0
}

func (m *Machine) firstErr() string {
	for _, g := range m.v.GEMM {
		if g.Err != "" {
			return fmt.Sprintf("%s: %s", g.Device, g.Err)
		}
	}
	for _, l := range m.v.Links {
		if l.Err != "" {
			return fmt.Sprintf("%s→%s: %s", l.FromDevice, l.ToDevice, l.Err)
		}
	}
	return ""
}
