package page

import (
	"slices"

	"github.com/failslow/falcon"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/tui/feed"
	"github.com/failslow/falcon/tui/roster"
)

// What a page can do beyond drawing, so that a link can hold the operator's
// place on it, and bring another there. A page implements what it has.
type (
	// Zoomer has levels of detail, from 0.
	Zoomer interface {
		Zoom() (level int, chosen bool) // not chosen: by itself
		SetZoom(level int)
	}
	// Scrubber has a hairline over iterations.
	Scrubber interface {
		At() (iteration int64, chosen bool) // not chosen: it follows the newest
		SetAt(iteration int64)
	}
	// Chooser shows one of several things that have ids.
	Chooser interface {
		Chosen(s *State) string
		Choose(id string)
	}
)

// LadderOf is the ladder of an incident as the snapshot has it: of the present
// one and of the other open ones; else nil.
func (s *State) LadderOf(incident string) *falconv1.Ladder {
	if l := s.Snap().GetLadder(); l.GetIncident() == incident {
		return l
	}
	for _, l := range s.Snap().GetOthers() {
		if l.GetIncident() == incident {
			return l
		}
	}
	return nil
}

// ProposalOf is what waits for a decision on an incident, or nil.
func (s *State) ProposalOf(incident string) *falconv1.Action {
	return proposalOn(s.LadderOf(incident))
}

func proposalOn(l *falconv1.Ladder) *falconv1.Action {
	if p := l.GetProposal(); p.GetState() == string(falcon.ActionProposed) {
		return p
	}
	return nil
}

// Waiting lists the incidents that wait for a decision, the present one first.
func (s *State) Waiting() []string {
	var out []string
	for _, l := range append([]*falconv1.Ladder{s.Snap().GetLadder()}, s.Snap().GetOthers()...) {
		if proposalOn(l) != nil {
			out = append(out, l.GetIncident())
		}
	}
	return out
}

// About is the state with another open incident in the present one's place, to
// be drawn and to be decided on; ok is false where the snapshot doesn't hold
// what that takes. It shares everything else with s.
func (s *State) About(incident string) (about *State, ok bool) {
	if s.Incident().GetId() == incident {
		return s, true
	}
	at := slices.IndexFunc(s.Snap().Incidents, func(i *falconv1.Incident) bool {
		return i.GetId() == incident
	})
	if at < 0 {
		return nil, false
	}
	snap, ok := inFront(s.Snap(), at)
	if !ok {
		return nil, false
	}
	return s.withSnapshot(snap), true
}

func (s *State) withSnapshot(snap *falconv1.SnapshotReply) *State {
	f := *s.Feed
	f.Snap = snap
	out := *s
	out.Feed = &f
	if out.whole == nil {
		out.whole = s.Snap()
	}
	return &out
}

// Showing is the state with another incident in the present one's place: to be
// drawn, not to be acted on. Nothing is proposed there, and nothing is open
// that the reply doesn't hold. It shares everything else with s.
func (s *State) Showing(r *falconv1.IncidentsReply) *State {
	snap := feed.Shallow(s.Snap())
	snap.Incidents = r.GetIncidents()
	snap.Ladder = nil
	snap.Others = nil
	if l := r.GetLadders(); len(l) > 0 && l[0] != nil {
		snap.Ladder = feed.Shallow(l[0])
		snap.Ladder.Proposal = nil
	}
	if v := r.GetValidations(); len(v) > 0 {
		snap.Validation = v[0]
	}
	return s.withSnapshot(snap)
}

// OpenIncidents counts those whose fault lasts.
func (s *State) OpenIncidents() int {
	n := 0
	for _, i := range s.Snap().Incidents {
		if Open(i) {
			n++
		}
	}
	return n
}

// RanksOn lists the ranks whose device is on one of the nodes, ascending.
func (s *State) RanksOn(nodes ...string) []int32 {
	var out []int32
	for i, r := range s.Roster.Views() {
		if slices.Contains(nodes, roster.NodeOf(r.GetDevice())) {
			out = append(out, i)
		}
	}
	return out
}

// NodeOf is the node of a rank's device, or "".
func (s *State) NodeOf(rank int32) string {
	if rank < 0 || int(rank) >= s.Roster.World() {
		return ""
	}
	return roster.NodeOf(s.Roster.View(rank).GetDevice())
}
