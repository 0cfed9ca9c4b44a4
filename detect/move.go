package detect

import (
	"fmt"
	"slices"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/detect/peer"
)

// move takes over a placement that ranks changed to within their job epoch
// (S3). What is known of devices follows them: their pace, the watch of the
// ranks, open incidents. Series stay with the ranks, and so does the baseline:
// blocks of ranks change nodes whole, so that every group and pair is within a
// node, or between nodes, as it was before, and on nodes of one kind the healthy
// iteration takes as long. Where it does not, the level after the settle window
// tells (settled). Windows that were asked for before an iteration mix both
// placements and are dropped.
func (m *Machine) move(now falcon.Placement, before int64) {
	was := m.job.Placement
	if len(now) != len(m.ranks) || slices.Equal(was, now) {
		return
	}
	m.job.Placement = slices.Clone(now)
	if len(was) != len(now) {
		m.replace()
		return
	}
	m.healthy.Move(m.job.Layout, was, now)
	m.rankWatch.Move(was, now)
	m.strangers, m.alarms = nil, nil
	for r := range now {
		if now[r] != was[r] {
			m.shown[r] = peer.Rank{}
		}
	}
	m.last, m.haveLast = peer.Result{}, false
	if m.window != nil && m.window.iteration < before {
		m.window = nil
		m.ended()
	}
	for _, s := range m.stories {
		m.carry(s, was)
	}
	m.replace()
}

// swapped takes in that ranks changed devices, or are back on them. The actions
// of before a restart are told again: then the job's description brought the
// placement already.
func (m *Machine) swapped(in Acted) {
	m.move(in.Placement, in.Iteration)
	m.disown()
	m.lookAt = in.Iteration + m.cfg.SettleAfter
	for _, s := range m.openStories() {
		if s.backAt = in.Iteration; !in.Reverted {
			s.displaced()
		}
	}
}

// carry takes a story to the new placement: what compares ranks with what they
// were before is forgotten, the culprits stay.
func (m *Machine) carry(s *story, was falcon.Placement) {
	s.accused, s.timing, s.reference, s.after = nil, nil, nil, m.windows
	s.displaced()
	if len(s.Verdict.Devices) > 0 || !s.Open() {
		return
	}
	var ranks []falcon.Rank
	for _, r := range s.Verdict.Ranks {
		if int(r) < len(was) {
			if q, placed := m.job.Placement.Rank(was[r]); placed {
				ranks = append(ranks, q)
			}
		}
	}
	slices.Sort(ranks)
	if len(ranks) > 0 && !slices.Equal(ranks, s.Verdict.Ranks) {
		s.Verdict.Ranks = ranks
		if s.ID != "" {
			m.emit(s)
		}
	}
}

// displaced says that a story's culprits do other work than when they were
// named: the iteration time tells nothing of them while that lasts.
func (s *story) displaced() {
	s.moved, s.streak, s.line = true, 0, line{}
	s.watched = s.watched || s.located()
}

// ended is a window that is given up without being judged.
func (m *Machine) ended() {
	for _, s := range m.stories {
		s.check = false
	}
}

// away says that a placement other than the job's own holds.
func (m *Machine) away() bool {
	return slices.ContainsFunc(m.stories, func(s *story) bool { return s.inForce[falcon.RungS3] })
}

// disown drops stories whose onset nobody was told yet and that an action's
// first iterations explain: the action was heard of after they were seen.
func (m *Machine) disown() {
	m.stories = slices.DeleteFunc(m.stories, func(s *story) bool {
		own := s.ID == "" && m.settling(s.OnsetIteration)
		if own {
			m.note(s.OnsetIteration, "settled", "The job is slower from iteration %d on because of an action: no onset", s.OnsetIteration)
		}
		return own
	})
}

// refer keeps of a complete window what a displaced story is compared with when
// the job gets slower again.
func (m *Machine) refer(s *story, w *window, res *peer.Result) {
	if s.moved && s.located() && s.timing == nil && s.reference == nil && res.Missing == 0 && w.iteration >= s.since {
		s.reference = res
	}
}

// compared is the window that "worse" is told against.
func (s *story) compared() *peer.Result {
	if s.timing == nil {
		return s.reference
	}
	return s.timing
}

// linksExplain says that an incident's links make a group slow: its ring goes
// over one of them.
func (m *Machine) linksExplain(o *story, g *peer.Group) bool {
	return slices.ContainsFunc(m.ringLinks(*g), func(l falcon.Link) bool { return slices.Contains(o.Verdict.Links, l) })
}

// throttled are the replicas whose pipeline goes over a link of an incident:
// the lesser delays of their other pairs follow from it.
func (m *Machine) throttled(o *story, res *peer.Result) map[int]bool {
	out := map[int]bool{}
	for i := range res.Pairs {
		p := &res.Pairs[i]
		if l, ok := m.linkOf(p.From, p.To); ok && slices.Contains(o.Verdict.Links, l) {
			out[m.job.Layout.Replica(p.To)] = true
		}
	}
	return out
}

// ringLinks are the links that a group's ring goes over, each once.
func (m *Machine) ringLinks(g peer.Group) []falcon.Link {
	var out []falcon.Link
	ring := m.ringOf(g)
	for i := range ring {
		if l, ok := m.linkOf(ring[i], ring[(i+1)%len(ring)]); ok && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// linkOf is the link between two ranks, false where they share a node.
func (m *Machine) linkOf(a, b falcon.Rank) (falcon.Link, bool) {
	if a < 0 || b < 0 || int(max(a, b)) >= len(m.job.Placement) {
		return falcon.Link{}, false
	}
	x, y := m.job.Placement[a].Node(), m.job.Placement[b].Node()
	return falcon.NewLink(x, y), x != y && x != "" && y != ""
}

// depart relieves the incidents whose devices and links all left the job: it
// was started again without them. The history of whom they named stays.
func (m *Machine) depart(iteration int64) {
	m.departures = false
	open := m.openStories()
	if len(open) == 0 || len(m.job.Placement) != len(m.ranks) || slices.Contains(m.job.Placement, "") {
		return
	}
	nodes := m.job.nodes()
	for _, s := range open {
		if len(s.Verdict.Devices)+len(s.Verdict.Links) == 0 {
			continue
		}
		stays := slices.ContainsFunc(s.Verdict.Devices, func(d falcon.Device) bool { return slices.Contains(m.job.Placement, d) }) ||
			slices.ContainsFunc(s.Verdict.Links, func(l falcon.Link) bool { return slices.Contains(nodes, l.A) && slices.Contains(nodes, l.B) })
		if !stays {
			m.relieve(s, iteration, fmt.Sprintf("%s left the job", culprits(s.Verdict)))
			for _, l := range s.Verdict.Links {
				delete(m.links, l)
			}
		}
	}
}

// shareOut leaves of slowness that a whole stage shares, or the whole job, what
// other incidents do not name already, where they name most of it: replicas that
// got slow one after the other are slow together in the end.
func (m *Machine) shareOut(res *peer.Result, named func(falcon.Rank) bool) {
	if res.AllSlow {
		all := make([]falcon.Rank, len(res.Ranks))
		for i := range all {
			all[i] = falcon.Rank(i)
		}
		res.AllSlow = !m.accuseRest(res, all, named)
		return
	}
	res.SlowStages = slices.DeleteFunc(slices.Clone(res.SlowStages), func(stage int) bool {
		var ranks []falcon.Rank
		for i := range res.Ranks {
			if r := falcon.Rank(i); m.job.Layout.Coord(r).PP == stage {
				ranks = append(ranks, r)
			}
		}
		return m.accuseRest(res, ranks, named)
	})
}

// accuseRest accuses those of a list of ranks, all slow alike, whom nobody
// names, where most are named. It says whether it did.
func (m *Machine) accuseRest(res *peer.Result, ranks []falcon.Rank, named func(falcon.Rank) bool) bool {
	rest := slices.DeleteFunc(slices.Clone(ranks), named)
	if 2*len(rest) >= len(ranks) {
		return false
	}
	res.Ranks, res.Slow, res.Clear = slices.Clone(res.Ranks), slices.Clone(res.Slow), true
	for _, r := range rest {
		if q := &res.Ranks[r]; q.OwnRatio > m.suspectRatio() {
			q.Ratio, q.Basis, q.Slow = q.OwnRatio, peer.ByOwn, true
			res.Slow = append(res.Slow, r)
		}
	}
	slices.Sort(res.Slow)
	return true
}
