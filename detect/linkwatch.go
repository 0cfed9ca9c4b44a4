package detect

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// linkRelief is how the links of a displaced incident are watched: a placement took
// the traffic that accused them to other links.
type linkRelief struct {
	shown  []falcon.Link // those that transfers showed slow at their new place: transfers can clear them too
	gap    int64         // iterations from one test to the next
	testAt int64         // iteration before which none is asked for
	asked  bool          // one is on its way

	barred   string // why the newest brought nothing, empty when it did
	refusals int    // tests running that brought nothing
	looks    int    // healthy windows running since the first of them
}

// Bounds of the watch of a link that carries little or nothing. A test holds the
// job, so the distance between two of them doubles from one to the next up to
// testMost: at most 7 tests in 1,260 iterations, then one in 640. The
// first that brings nothing is repeated soon. Where barredLeast running bring
// nothing although all nodes are heard, quietLooks healthy looks since the first,
// and ports at rest at both ends, do.
const (
	testGap    = 20
	testMost   = 640
	quietLooks = 9

	barredLeast = 2
	// over its class: a message that takes this long is slow however little it weighs
	pairSlow = 1.5
	restSpan = 5 * time.Second // over which ports must be at rest
)

// sign is what one look says about a link. Of the links of an incident the
// greatest counts: one slow link is enough, and one that is not proven.
type sign int

const (
	proven sign = iota // what accused it, or would, is healthy
	quiet              // nothing speaks against it, and nothing proves it
	unseen             // nothing was measured
	slow
)

// judgeWindow judges a displaced incident's links by a window.
func (lw *linkWatch) judgeWindow(s *incidentState, w *window, res *peer.Result) {
	faster := s.relief.check && len(s.actions.inForce) == 0
	s.relief.urgent, s.relief.check = false, false
	if res.Missing > 0 {
		return
	}
	worst := proven
	for _, l := range s.Verdict.Links {
		worst = max(worst, lw.trafficSign(s, l, res))
	}
	switch worst {
	case unseen:
		return
	case slow:
		s.relief.seenBad(w.iteration)
		s.move.links.looks = 0
		return
	case quiet, proven:
	}
	if faster && worst == proven {
		lw.relief.relieve(s, s.relief.fasterAt,
			"the job got faster and transfers over it take as long as their class's")
		return
	}
	s.relief.seenHealthy(w.iteration)
	if s.move.links.refusals > 0 {
		s.move.links.looks++
	}
	switch {
	case s.relief.streak < lw.cfg.Relief.Streak:
	case worst == proven:
		lw.relief.relieve(
			s,
			max(s.relief.healthyAt, s.relief.badAt+1),
			fmt.Sprintf("transfers over %s took as long as their class's in %d profiles running",
				culpritNames(s.Verdict), s.relief.streak),
		)
	case s.move.links.refusals >= barredLeast &&
		s.move.links.looks >= quietLooks &&
		lw.portsAtRest(s):
		lw.relief.relieve(
			s,
			max(s.relief.healthyAt, s.relief.badAt+1),
			fmt.Sprintf(
				"the ports at the ends of %s were at rest in %d looks running, while it carried little; no test confirms it (%s)",
				culpritNames(s.Verdict), s.move.links.looks, s.move.links.barred),
		)
	}
}

// trafficSign is what a window says about a link at its present use: the transfers of
// the rings that go over it, else those of pairs, else the ports at its ends.
func (lw *linkWatch) trafficSign(s *incidentState, l falcon.Link, res *peer.Result) sign {
	if in := lw.ringSign(l, res); in != unseen {
		return in
	}
	pairs := lw.pairSign(l, res)
	if pairs == slow {
		if !slices.Contains(s.move.links.shown, l) {
			s.move.links.shown = append(s.move.links.shown, l)
		}
		return slow
	}
	if pairs == proven && slices.Contains(s.move.links.shown, l) {
		return proven
	}
	if hot, known := lw.countersHot(l); known && hot {
		return slow
	}
	return quiet
}

// ringSign judges a link by the collectives whose ring goes over it; unseen where
// there is none, or none that could be compared.
func (lw *linkWatch) ringSign(l falcon.Link, res *peer.Result) sign {
	out := unseen
	for i := range res.Groups {
		g := &res.Groups[i]
		if !g.Internode ||
			g.Dimension == falcon.DimWorld ||
			g.Basis == peer.ByNone ||
			!slices.Contains(lw.job.ringLinks(*g), l) {
			continue
		}
		if g.Suspect || g.Crowded {
			return slow
		}
		out = proven
	}
	return out
}

// pairSign judges a link by the pipeline's messages over it, against their class. A small
// excess proves nothing: a test must decide.
func (lw *linkWatch) pairSign(l falcon.Link, res *peer.Result) sign {
	out := unseen
	for i := range res.Pairs {
		p := &res.Pairs[i]
		over, ok := lw.job.linkBetween(p.From, p.To)
		if !ok || over != l || p.Basis == peer.ByNone {
			continue
		}
		switch {
		case p.Suspect || p.Crowded || p.Ratio > pairSlow:
			return slow
		case p.Ratio > lw.evidence.suspectRatio():
			out = quiet
		case out == unseen:
			out = proven
		}
	}
	return out
}

// countersHot reports whether the ports at both ends of a link see congestion now. An end
// that another open incident's link shares shows nothing.
func (lw *linkWatch) countersHot(l falcon.Link) (hot, known bool) {
	for _, n := range []falcon.Node{l.A, l.B} {
		for _, o := range lw.incidents.openIncidents() {
			for _, other := range o.Verdict.Links {
				if other != l && (other.A == n || other.B == n) {
					return false, false
				}
			}
		}
		busy, seen := lw.evidence.portsBusy(
			n,
			[]falcon.Node{l.A, l.B},
			lw.clock.now.Add(-restSpan),
		)
		if !seen {
			return false, false
		}
		hot = hot || busy
	}
	return hot, true
}

// portsAtRest reports whether the ports at all ends of an incident's links are free of congestion.
func (lw *linkWatch) portsAtRest(s *incidentState) bool {
	return !slices.ContainsFunc(s.Verdict.Links, func(l falcon.Link) bool {
		hot, known := lw.countersHot(l)
		return hot || !known
	})
}

// requestTest asks for a test of a link that has looked at rest for long enough, one
// incident at a time. It reports whether it did.
func (lw *linkWatch) requestTest(at int64) bool {
	if lw.tests.waiting() || lw.baseline.isSettling(at) {
		return false
	}
	for _, s := range lw.incidents.list {
		if !s.Open() ||
			!s.hasOnlyLinks() ||
			s.relief.streak < lw.cfg.Relief.Streak ||
			at < s.move.links.testAt ||
			lw.incidents.awaitsNodes(s) {
			continue
		}
		if len(lw.samples.silentNodes()) > 0 {
			return false // it would be refused
		}
		ask := lw.testFor(s)
		s.move.links.gap = min(max(2*s.move.links.gap, testGap), testMost)
		s.move.links.testAt = at + s.move.links.gap
		if lw.cfg.Validate.Tries < 0 {
			s.move.links.barred = "tests are switched off"
			s.move.links.refusals = barredLeast
			continue
		}
		if len(ask.Pairs) == 0 {
			s.move.links.barred = "no ranks are at both of its ends"
			s.move.links.refusals = barredLeast
			continue
		}
		s.move.links.asked = true
		lw.tests.wait(s.ID)
		lw.out.addAsk(ask)
		return true
	}
	return false
}

// testFor asks for an incident's links and for enough others of their class for a
// median that the slow ones don't move.
func (lw *linkWatch) testFor(s *incidentState) falcon.ValidationAsk {
	ask := falcon.ValidationAsk{
		Incident: s.ID,
		By:       "engine",
		Question: falcon.QuestionHealthy,
		Why: fmt.Sprintf("%s: %s has looked at rest since iteration %d: is it healthy again?",
			s.ID, culpritNames(s.Verdict), s.relief.healthyAt),
	}
	at := lw.job.ranksByNode()
	avoid := lw.incidents.namedLinks()
	for _, l := range s.Verdict.Links {
		if p, ok := lw.job.rankAcross(at, l.A, l.B); ok {
			ask.Pairs = append(ask.Pairs, p)
		}
	}
	if len(ask.Pairs) < len(s.Verdict.Links) {
		ask.Pairs = nil
		return ask
	}
	nodes := lw.job.desc.Placement.Nodes()
	need := min(2*len(ask.Pairs)+askClass, askPairs)
	for i, a := range nodes {
		for _, b := range nodes[i+1:] {
			p, ok := lw.job.rankAcross(at, a, b)
			if ok && len(ask.Pairs) < need && !avoid[falcon.NewLink(a, b)] {
				ask.Pairs = append(ask.Pairs, p)
			}
		}
	}
	return ask
}

// judgeTest takes a test of a displaced incident's links, which leaves the verdict as it is,
// and reports whether the test was about them.
func (lw *linkWatch) judgeTest(s *incidentState, v falcon.Validation) bool {
	if !s.hasOnlyLinks() || v.Ask.Incident != "" && !s.move.links.asked {
		return false
	}
	at := lw.samples.lastIteration()
	ratio := 0.0
	slowest := falcon.Link{}
	judged := 0
	isSlow := false
	for _, l := range s.Verdict.Links {
		t, ok := summarizeTests(v.Links, l)
		if !ok {
			continue
		}
		if t.both {
			judged++
		}
		isSlow = isSlow || t.slow
		if t.ratio > ratio {
			ratio = t.ratio
			slowest = l
		}
	}
	if v.Ask.Incident != "" {
		s.move.links.asked = false
	} else if judged == 0 {
		return false
	}
	switch {
	case isSlow:
		s.relief.seenBad(at)
		s.move.links.clearRefusals()
		lw.out.addNote(s.ID, at, "relief",
			"%s: %s still takes %.2f x the median of its class; another test in %d iterations at the earliest",
			s.ID, slowest, ratio, s.move.links.gap)
	case judged == len(s.Verdict.Links) &&
		v.State == falcon.ValidationDone &&
		(s.relief.streak >= lw.cfg.Relief.Streak || v.Ask.Incident == ""):
		if s.relief.streak == 0 || !lw.portsAtRest(s) { // looks that see nothing don't say since when
			s.relief.healthyAt = at
		}
		lw.relief.relieve(
			s,
			max(s.relief.healthyAt, s.relief.badAt+1),
			fmt.Sprintf("%s takes %.2f x the median of its class in a test", culpritNames(s.Verdict), ratio),
		)
	default:
		lw.recordRefusal(s, v, at)
	}
	return true
}

// recordRefusal notes a test that brought nothing. The first of them may be for a moment
// only, such as that of an agent between two connections, and is soon repeated.
func (lw *linkWatch) recordRefusal(s *incidentState, v falcon.Validation, at int64) {
	s.move.links.refusals++
	s.move.links.barred = cmp.Or(v.Reason, "a test could not judge it")
	if s.move.links.refusals < barredLeast {
		s.move.links.testAt = min(s.move.links.testAt, at+testGap)
	}
}

// testSummary is what exchanges over one node pair showed.
type testSummary struct {
	both  bool    // directions were judged
	slow  bool    // half of them at least
	ratio float64 // the greatest
}

// summarizeTests sums up the judged exchanges over a link, ok false where there is none.
func summarizeTests(results []falcon.LinkResult, l falcon.Link) (out testSummary, ok bool) {
	judged := 0
	slow := 0
	ways := map[falcon.Node]bool{}
	for _, r := range results {
		a := r.FromDevice.Node()
		b := r.ToDevice.Node()
		if r.Err != "" ||
			r.Unjudged != "" ||
			!(r.BaseMs > 0) ||
			!(r.Ratio > 0) ||
			falcon.NewLink(a, b) != l {
			continue
		}
		judged++
		ways[b] = true
		if r.Slow {
			slow++
		}
		out.ratio = max(out.ratio, r.Ratio)
	}
	out.slow = slow > 0 && 2*slow >= judged
	out.both = len(ways) == 2
	return out, judged > 0
}

// linkWatch looks for the relief of links whose ranks a placement moved away.
type linkWatch struct {
	cfg       *Config
	clock     *clock
	out       *output
	job       *jobState
	samples   *sampleLog
	incidents *incidentSet
	baseline  *baseline
	evidence  *evidence
	tests     *testPlanner
	relief    *reliefJudge
}

// clearRefusals forgets the tests that brought no result.
func (r *linkRelief) clearRefusals() {
	r.barred = ""
	r.refusals = 0
	r.looks = 0
}
