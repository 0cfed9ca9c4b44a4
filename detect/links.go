package detect

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// linkLog holds the links that were judged lately.
type linkLog struct {
	clock     *clock
	job       *jobState
	incidents *incidentSet
	evidence  *evidence
	seen      map[falcon.Link]linkSeen
}

// linkSeen is the newest judgement of a link.
type linkSeen struct {
	ratio  float64
	at     time.Time
	tested bool
}

// Bounds on the links that are remembered: a judgement is good for linkFor,
// unless an open incident names the link.
const (
	linkFor  = 30 * time.Minute
	linkMost = 1024
)

// linkSpeeds lists the job's links that were judged lately, slow ones first.
func (y *linkLog) linkSpeeds() []falcon.LinkSpeed {
	nodes := map[falcon.Node]bool{}
	for _, d := range y.job.desc.Placement {
		nodes[d.Node()] = true
	}
	named := y.incidents.namedLinks()
	var out []falcon.LinkSpeed
	for l, seen := range y.seen {
		if nodes[l.A] &&
			nodes[l.B] &&
			(named[l] || y.clock.now.Sub(seen.at) <= linkFor) {
			out = append(out, falcon.LinkSpeed{Link: l, Ratio: seen.ratio})
		}
	}
	slices.SortFunc(out, func(a, b falcon.LinkSpeed) int {
		return cmp.Or(
			cmp.Compare(b.Ratio, a.Ratio),
			cmp.Compare(a.Link.A, b.Link.A),
			cmp.Compare(a.Link.B, b.Link.B),
		)
	})
	return out
}

// addTests remembers what a validation says about links, whoever asked for it.
func (y *linkLog) addTests(v falcon.Validation) {
	for _, r := range v.Links {
		l := falcon.NewLink(r.FromDevice.Node(), r.ToDevice.Node())
		if l.A == l.B || l.A == "" {
			continue
		}
		t, ok := summarizeTests(v.Links, l)
		switch {
		case !ok || math.IsInf(t.ratio, 0):
		case t.slow:
			y.addJudgement(l, linkSeen{t.ratio, y.clock.now, true})
		default:
			y.addJudgement(l, linkSeen{1, y.clock.now, true})
		}
	}
}

// addTransfers remembers what a window shows of links without a slow test: pairs against their
// class, and rings whose slow link an incident names.
func (y *linkLog) addTransfers(res *peer.Result) {
	named := y.incidents.namedLinks()
	ratios := map[falcon.Link]float64{}
	for i := range res.Pairs {
		p := &res.Pairs[i]
		l, ok := y.job.linkBetween(p.From, p.To)
		switch {
		case !ok || p.Basis == peer.ByNone:
		case p.Suspect:
			ratios[l] = max(ratios[l], p.Ratio)
		case p.Ratio <= y.evidence.suspectRatio() && !p.Crowded && !named[l]:
			ratios[l] = max(ratios[l], 1)
		}
	}
	for l, ratio := range ratios {
		old := y.seen[l]
		if !old.tested ||
			y.clock.now.Sub(old.at) > linkFor ||
			ratio > 1 && old.ratio == 1 {
			y.addJudgement(l, linkSeen{ratio, y.clock.now, false})
		}
	}
	for i := range res.Groups {
		g := &res.Groups[i]
		if !g.Suspect ||
			!g.Internode ||
			g.Dimension == falcon.DimWorld ||
			len(named) == 0 {
			continue
		}
		for _, l := range y.job.ringLinks(*g) {
			if old := y.seen[l]; named[l] && (!old.tested || old.ratio == 1) { // tested before it got slow
				y.addJudgement(l, linkSeen{max(g.Ratio, 1), y.clock.now, false})
			}
		}
	}
	y.clearHealthy(res, named)
}

// clearHealthy takes slow judgements back that all rings over the link disprove, while no
// incident names it: a fault that passed without a test after it must not be planned around.
func (y *linkLog) clearHealthy(res *peer.Result, named map[falcon.Link]bool) {
	fine := map[falcon.Link]bool{}
	for i := range res.Groups {
		g := &res.Groups[i]
		if !g.Internode || g.Dimension == falcon.DimWorld {
			continue
		}
		healthy := g.Basis != peer.ByNone &&
			!g.Suspect &&
			!g.Crowded &&
			g.Ratio <= y.evidence.suspectRatio()
		for _, l := range y.job.ringLinks(*g) {
			was, known := fine[l]
			fine[l] = healthy && (was || !known)
		}
	}
	for l, seen := range y.seen {
		if seen.ratio > 1 && fine[l] && !named[l] {
			y.addJudgement(l, linkSeen{1, y.clock.now, false})
		}
	}
}

func (y *linkLog) addJudgement(l falcon.Link, seen linkSeen) {
	if y.seen == nil {
		y.seen = map[falcon.Link]linkSeen{}
	}
	y.seen[l] = seen
	if len(y.seen) <= linkMost {
		return
	}
	oldest := l
	for k, v := range y.seen {
		o := y.seen[oldest]
		if v.at.Before(o.at) || v.at.Equal(o.at) && k.String() < oldest.String() {
			oldest = k
		}
	}
	delete(y.seen, oldest)
}

// markHealthy remembers that a relieved incident's links are healthy.
func (y *linkLog) markHealthy(s *incidentState) {
	for _, l := range s.Verdict.Links {
		if _, known := y.seen[l]; known {
			y.addJudgement(l, linkSeen{1, y.clock.now, false})
		}
	}
}

// forget drops what is known of a link that left the job.
func (y *linkLog) forget(l falcon.Link) {
	delete(y.seen, l)
}
