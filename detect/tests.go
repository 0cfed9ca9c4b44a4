package detect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/cause"
	"github.com/failslow/falcon/detect/passes"
	"github.com/failslow/falcon/detect/peer"
)

// pendingAsk is a validation that was asked for and is not answered yet.
type pendingAsk struct {
	incident string
	at       time.Time
}

// Bounds of what one validation asks for, and of the waiting for its answer:
// profile windows that can wait do so meanwhile, as a job that is held can't
// be profiled.
const (
	askHold      = 15 * time.Second
	askRanks     = 64
	askRings     = 8
	askPairs     = 16
	askClass     = 3    // links or GPUs beside the suspects that make a median
	provenEnough = 0.90 // confidence above which a test adds nothing
)

// waiting reports whether a validation is on its way.
func (t *testPlanner) waiting() bool {
	return t.pending != nil && t.clock.now.Sub(t.pending.at) < askHold
}

// request asks for the tests that a verdict lacks, for one incident, and reports whether it did.
func (t *testPlanner) request(at int64) bool {
	if t.waiting() || t.cfg.Validate.Tries < 0 || t.baseline.isSettling(at) {
		return false
	}
	for _, s := range t.incidents.list {
		if !t.wantsTest(s, at) {
			continue
		}
		ask := t.testsFor(s)
		if len(ask.GEMM)+len(ask.Rings)+len(ask.Trees)+len(ask.Pairs) == 0 {
			continue
		}
		s.tests.asks++
		s.tests.notBefore = at + t.cfg.Validate.Spacing
		t.wait(s.ID)
		t.out.addAsk(ask)
		return true
	}
	return false
}

// wantsTest reports whether a test can add to an incident's verdict: no counter proves
// it, the margin is thin, no link is named, or the confidence is low. While an
// action holds its gain is measured, and the job is left alone.
func (t *testPlanner) wantsTest(s *incidentState, at int64) bool {
	v := &s.Verdict
	switch {
	case !s.Open() ||
		s.burst.paused ||
		s.ID == "" ||
		!s.hasVerdict() ||
		s.basis.timing == nil ||
		s.basis.timing.AllSlow ||
		len(s.actions.inForce) > 0 && s.tests.grewAt == 0:
		return false
	case s.tests.done ||
		s.tests.asks >= t.cfg.Validate.Tries ||
		at < s.tests.notBefore:
		return false
	case v.Cause == falcon.CauseNotHardware || v.Cause == falcon.CauseFacility:
		return false
	}
	if s.tests.grewAt > 0 {
		return true
	}
	counters := slices.ContainsFunc(v.Evidence, func(e falcon.Evidence) bool {
		return e.Kind == falcon.EvidenceCounter && !e.Against
	})
	thin := len(s.basis.timing.Slow) > 0 && !s.basis.timing.Clear
	nameless := v.Cause == falcon.CauseNetwork && len(v.Links) == 0
	return !counters || thin || nameless || v.Confidence < provenEnough
}

// testsFor is what would prove or clear an incident's suspects (FALCON §4.4): a
// multiplication on slow ranks and on those with the same work, and the links
// of slow groups and pairs. Where timing decides nothing all ranks multiply,
// and the data-parallel rings are tested.
func (t *testPlanner) testsFor(s *incidentState) (ask falcon.ValidationAsk) {
	ask = falcon.ValidationAsk{Incident: s.ID, By: "engine"}
	ask.GEMM = t.suspectRanks(s)
	ask.Pairs = t.suspectPairs(s.basis.timing)
	t.addSuspectGroups(&ask, s.basis.timing)
	links := len(ask.Rings)+len(ask.Trees)+len(ask.Pairs) > 0
	switch {
	case len(ask.GEMM) > 0 && links:
		ask.Question = falcon.QuestionGPUOrLink
		ask.Why = fmt.Sprintf("%s: is it %s, or a link of the slow groups?", s.ID, culpritNames(s.Verdict))
	case len(ask.GEMM) > 0:
		ask.Question = falcon.QuestionGPU
		ask.Why = fmt.Sprintf("%s: is it the GPU that makes %s slow?", s.ID, culpritNames(s.Verdict))
	case links:
		ask.Question = falcon.QuestionLink
		ask.Why = fmt.Sprintf("%s: which link makes %s slow?", s.ID, culpritNames(s.Verdict))
	default:
		ask.Question, ask.Why = falcon.QuestionAny, s.ID+": timing names no rank: is any GPU or link slow?"
		ask.GEMM = t.allRanks()
		for _, d := range []falcon.Dimension{falcon.DimDP, falcon.DimFSDP, falcon.DimCP} {
			t.newGroupTests(&ask).addAll(t.job.layoutGroups(d))
		}
	}
	return ask
}

// suspectRanks are the suspects and enough others for a median.
func (t *testPlanner) suspectRanks(s *incidentState) []falcon.Rank {
	var out []falcon.Rank
	add := func(r falcon.Rank) {
		if len(out) < askRanks && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	for _, r := range s.basis.timing.Slow {
		add(r)
	}
	if s.Verdict.Cause != falcon.CauseNetwork {
		for _, r := range s.Verdict.Ranks {
			add(r)
		}
	}
	suspects := len(out)
	if suspects == 0 {
		return nil
	}
	alike := t.job.desc.Layout.Alike()
	for _, r := range slices.Clone(out) {
		i := slices.IndexFunc(alike, func(column []falcon.Rank) bool {
			return slices.Contains(column, r)
		})
		for _, q := range alike[max(i, 0)] {
			add(q)
		}
	}
	for r := falcon.Rank(0); int(r) < len(t.samples.ranks) && len(out) < 2*suspects+askClass; r++ {
		add(r)
	}
	slices.Sort(out)
	return out
}

func (t *testPlanner) allRanks() []falcon.Rank {
	out := make([]falcon.Rank, min(len(t.samples.ranks), askRanks))
	for i := range out {
		out[i] = falcon.Rank(i)
	}
	return out
}

// addSuspectGroups asks for the paths of the slow groups; where they use too few links
// for a median, for those of groups of other members too.
func (t *testPlanner) addSuspectGroups(ask *falcon.ValidationAsk, res *peer.Result) {
	tests := t.newGroupTests(ask)
	for i := range res.Groups {
		if g := &res.Groups[i]; g.Suspect && g.Dimension != falcon.DimWorld {
			tests.add(g)
		}
	}
	if len(tests.list) == 0 {
		return
	}
	tests.addChannels()
	for _, d := range []falcon.Dimension{
		falcon.DimDP, falcon.DimFSDP, falcon.DimCP, falcon.DimPP, falcon.DimTP,
	} {
		for _, g := range t.job.layoutGroups(d) {
			if len(tests.links) < askClass {
				tests.add(&g)
			}
		}
	}
}

// suspectPairs are the slow pipeline links, and the same links of other replicas.
func (t *testPlanner) suspectPairs(res *peer.Result) [][2]falcon.Rank {
	var out [][2]falcon.Rank
	add := func(a, b falcon.Rank) {
		p := [2]falcon.Rank{min(a, b), max(a, b)}
		if len(out) < askPairs && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	for _, p := range res.Pairs {
		if p.Suspect {
			add(p.From, p.To)
		}
	}
	for _, p := range slices.Clone(out) {
		from := t.job.desc.Layout.Coord(p[0])
		to := t.job.desc.Layout.Coord(p[1])
		for d := range t.job.desc.Layout.DP {
			from.DP, to.DP = d, d
			add(t.job.desc.Layout.RankOf(from), t.job.desc.Layout.RankOf(to))
		}
	}
	return out
}

// stepValidated takes in a validation that is over: its results are evidence
// for the incident that asked, or for those open ones that it concerns.
func (m *Machine) stepValidated(in Validated) {
	v := in.Validation
	if !m.job.known || !v.State.Over() {
		return
	}
	m.tests.answered(v.Ask.Incident)
	m.out.addNote(v.ID, m.samples.newest, "validation", "%s", validationSummary(v))
	m.links.addTests(v)
	for _, s := range slices.Clone(m.incidents.list) {
		if s.Open() &&
			s.hasVerdict() &&
			s.ID != "" &&
			(s.ID == v.Ask.Incident || v.Ask.Incident == "" && m.evidence.concerned(s, v)) &&
			!m.linkWatch.judgeTest(s, v) {
			m.applyTests(s, v)
		}
	}
}

// untested is what a validation that was not allowed would have decided, nil where it was allowed.
func untested(v falcon.Validation) *falcon.Untested {
	if v.Bar == falcon.BarNone {
		return nil
	}
	pairs := 0
	for _, pass := range passes.Plan(v.Ask) {
		pairs += len(pass.Pairs)
	}
	return &falcon.Untested{
		Bar:      v.Bar,
		Question: v.Ask.Question,
		GPUs:     len(v.Ask.GEMM),
		Links:    pairs,
	}
}

// applyTests judges an incident again by a test. A refusal lowers the confidence; that a test was not
// allowed does not.
func (m *Machine) applyTests(s *incidentState, v falcon.Validation) {
	t := &cause.Tests{Refused: v.Reason, Barred: untested(v)}
	if t.Barred != nil {
		t.Refused = ""
	}
	if v.State == falcon.ValidationDone {
		t.Refused, s.tests.done = "", true
	}
	measured := len(v.GEMM)+len(v.Links) > 0
	switch {
	case measured:
		t.GEMM = slices.Clone(v.GEMM)
		t.Links = slices.Clone(v.Links)
	case s.tests.results != nil:
		return // an earlier one brought more
	}
	if !measured && t.Refused == "" && t.Barred == nil {
		return
	}
	s.tests.results = t
	if s.basis.timing == nil {
		return
	}
	was := s.isLocated()
	verdict := cause.Judge(m.evidence.caseFor(s, *s.basis.timing))
	if !was && len(verdict.Devices)+len(verdict.Links)+len(verdict.Ranks) > 0 {
		m.publishVerdict(s, verdict)
		return
	}
	verdict = m.splitLinks(s, verdict)
	m.returns.settle(s, verdict)
	m.culprits.conclude(s, verdict)
	m.incidents.handOut(s)
}

// validationSummary is one sentence on a validation for the event log.
func validationSummary(v falcon.Validation) string {
	id := cmp.Or(v.ID, "The validation")
	if len(v.GEMM)+len(v.Links) == 0 && v.State != falcon.ValidationDone {
		return fmt.Sprintf("%s was %s: %s", id, v.State, v.Reason)
	}
	var slow []string
	add := func(name string) {
		if !slices.Contains(slow, name) {
			slow = append(slow, name)
		}
	}
	for _, g := range v.GEMM {
		if g.Slow {
			add(string(g.Device))
		}
	}
	for _, l := range v.Links {
		if l.Slow {
			add(fmt.Sprintf("%s to %s", l.FromDevice, l.ToDevice))
		}
	}
	text := fmt.Sprintf("%s tested %d GPUs and %d link directions: ", id, len(v.GEMM), len(v.Links))
	switch left := len(v.NotJudged()); {
	case len(slow) > 0:
		text += "slow are " + strings.Join(slow, ", ")
	case left > 0:
		text += fmt.Sprintf("none is known to be slow, %d could not be judged (%s)",
			left, v.NotJudged()[0].Why)
	default:
		text += "none is slow"
	}
	if v.State != falcon.ValidationDone && v.Reason != "" {
		text += " (incomplete: " + v.Reason + ")"
	}
	return text
}

// testPlanner asks for the tests that verdicts lack.
type testPlanner struct {
	cfg       *Config
	clock     *clock
	out       *output
	job       *jobState
	samples   *sampleLog
	incidents *incidentSet
	baseline  *baseline
	pending   *pendingAsk // not answered yet
}

// wait begins the wait for the tests of an incident.
func (t *testPlanner) wait(incident string) {
	t.pending = &pendingAsk{incident, t.clock.now}
}

// answered ends the wait for the tests of an incident.
func (t *testPlanner) answered(incident string) {
	if t.pending != nil && t.pending.incident == incident {
		t.pending = nil
	}
}

func (t *testPlanner) reset() {
	t.pending = nil
}
